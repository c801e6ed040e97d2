#!/bin/bash
# release.sh dist|check|bundle: what is handed out, from the last commit (or, without git, from this folder).
#   dist    build/dist: source archive and wheel, built twice and compared, SBOM, checksums
#   check   the wheel of build/dist in a new environment of each Python that is found, with the literal first run
#   bundle  build/bundle: everything that a machine without a network needs, as one archive, and a try without an index
# PYTHON names the interpreter that builds; PYTHONS those that check tries (default: those of the classifiers).
# IMAGE=1 puts the container image into the bundle (needs Docker).
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
python=${PYTHON:-.venv/bin/python}
dist=$root/build/dist
bundle=$root/build/bundle
work=$(mktemp -d "${TMPDIR:-/tmp}/fastlloyd-release.XXXXXX")
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH  # what is installed is tried, not this tree
export PIP_DISABLE_PIP_VERSION_CHECK=1 LC_ALL=C

fail() {
  echo "release.sh: $*" >&2
  exit 1
}

# source_tree FOLDER: the files of the last commit
source_tree() {
  mkdir -p "$1"
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git archive HEAD | tar -x -C "$1"
    if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
      echo "note: changes that are not committed are left out" >&2
    fi
  else
    tar -c --exclude=./build --exclude='./.venv*' . | tar -x -C "$1"
  fi
}

# build SOURCE FOLDER: the source archive, and the wheel from it
build() {
  (cd "$1" && "$tools/bin/python" -m build --outdir "$2" . >"$work/build.log" 2>&1) || {
    cat "$work/build.log" >&2
    fail "the build failed"
  }
}

# environment FOLDER [PYTHON]: a new one
environment() {
  "${2:-$python}" -m venv "$1"
}

wheel() {
  ls "$dist"/*.whl 2>/dev/null || fail "there is no wheel in build/dist: make dist first"
}

# first_run BIN: the literal command in an empty folder, and its report checked
first_run() {
  local folder
  folder=$(mktemp -d "$work/run.XXXXXX")
  (
    cd "$folder"
    "$1/mpirun" -n 3 "$1/python" -m fastlloyd.client >log 2>&1 || { cat log >&2; exit 1; }
    "$1/fastlloyd" report --verify fastlloyd-run >>log 2>&1 || { cat log >&2; exit 1; }
  )
}

# Open MPI and MPICH as root, on few cores: as in smoke.sh
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

make_dist() {
  rm -rf "$dist" && mkdir -p "$dist"
  tools=$work/tools
  environment "$tools"
  "$tools/bin/pip" install -q build cyclonedx-bom
  source_tree "$work/one"
  mkdir "$work/elsewhere" && source_tree "$work/elsewhere/two"
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 1580601600)
  export SOURCE_DATE_EPOCH
  build "$work/one" "$dist"
  build "$work/elsewhere/two" "$work/again"
  for file in "$dist"/*; do
    cmp "$file" "$work/again/$(basename "$file")" || fail "two builds of $(basename "$file") differ"
  done
  environment "$work/all"
  "$work/all/bin/pip" install -q "$(wheel)[all]"
  "$work/all/bin/pip" check
  rm "$work"/all/lib/python*/site-packages/fastlloyd-*.dist-info/direct_url.json  # a path of this machine
  "$tools/bin/cyclonedx-py" environment --output-reproducible --of JSON --spec-version 1.6 \
    -o "$dist/sbom.cdx.json" "$work/all/bin/python" >/dev/null
  (cd "$dist" && sha256sum -- * >SHA256SUMS)
  cat "$dist/SHA256SUMS"
  echo "release: built twice, the same bytes; $(du -k "$(wheel)" | cut -f1) KiB of wheel"
}

check_dist() {
  local tried=0 name found place last
  wheel >/dev/null
  for name in ${PYTHONS:-$(sed -n 's/.*"Programming Language :: Python :: \(3\.[0-9]*\)".*/python\1/p' pyproject.toml)}; do
    found=$(command -v "$name") || { echo "release: $name: not on this machine, not tried"; continue; }
    "$found" -c 'import venv, ensurepip' 2>/dev/null || { echo "release: $name: has no venv module, not tried"; continue; }
    place=$work/$(basename "$name")
    environment "$place" "$found"
    "$place/bin/pip" install -q "$(wheel)[mpich]"
    "$place/bin/pip" check >/dev/null || fail "$name: packages do not go together"
    first_run "$place/bin" || fail "$name: the first run failed"
    echo "release: $("$place/bin/python" --version): wheel installed, the first run and its report passed"
    tried=$((tried + 1))
    last=$place
  done
  [ "$tried" -gt 0 ] || fail "none of the Pythons was found"
  "$last/bin/fastlloyd" bench --list >"$work/bench.log" 2>&1 && fail "fastlloyd bench is there without papers/"
  grep -q "pip install ./papers" "$work/bench.log" || fail "fastlloyd bench does not say how to get it"
  "$last/bin/pip" wheel -q --no-deps --wheel-dir "$work/papers" ./papers
  "$last/bin/pip" install -q "$work"/papers/*.whl
  "$last/bin/fastlloyd" bench --list >/dev/null || fail "the wheel of papers/ does not list its benchmarks"
  echo "release: wheel of papers/ installed, fastlloyd bench --list passed"
  place=$work/from-source
  environment "$place"
  "$place/bin/pip" install -q "$(ls "$dist"/*.tar.gz)[mpich]"
  first_run "$place/bin" || fail "the first run of the source archive failed"
  echo "release: source archive installed, the first run and its report passed"
}

make_bundle() {
  local name place
  wheel >/dev/null
  rm -rf "$bundle" && mkdir -p "$bundle/wheels"
  environment "$work/fetch"
  # A package that exists as source only would need a compiler there: refused.
  "$work/fetch/bin/pip" download -q --only-binary :all: --dest "$bundle/wheels" "$(wheel)[all]"
  cp "$dist/sbom.cdx.json" "$bundle/"
  cp scripts/bundle_install.sh "$bundle/install.sh"
  if [ -n "${IMAGE:-}" ]; then
    command -v docker >/dev/null || fail "IMAGE=1 needs Docker, which is not there"
    docker build -q -f docker/Dockerfile -t fastlloyd . >"$bundle/image.id"
    docker save fastlloyd | gzip -n >"$bundle/image.tar.gz"
  fi
  (cd "$bundle" && find . -type f ! -name SHA256SUMS | sort | xargs sha256sum >SHA256SUMS)
  name=$(basename "$(wheel)" -py3-none-any.whl)-$("$python" -c 'import sys, sysconfig
print("cp%d%d" % sys.version_info[:2], sysconfig.get_platform().replace("-", "_"), sep="-")')
  tar -c --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --transform "s|^\.|$name|" -C "$bundle" . \
    >"$root/build/$name.tar"
  # As on a machine without a network: nothing but the archive.
  tar -x -C "$work" -f "$root/build/$name.tar"
  PIP_NO_INDEX=1 PIP_CONFIG_FILE=/dev/null "$work/$name/install.sh" "$work/offline" "$python"
  first_run "$work/offline/bin" || fail "the first run from the bundle failed"
  echo "release: build/$name.tar, $(du -m "$root/build/$name.tar" | cut -f1) MiB: installed without an index, the first run passed"
}

case "${1:-}" in
  dist) make_dist ;;
  check) check_dist ;;
  bundle) make_bundle ;;
  *) echo "usage: release.sh dist|check|bundle, got ${1:-nothing}" >&2; exit 2 ;;
esac
