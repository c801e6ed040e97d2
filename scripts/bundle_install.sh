#!/bin/bash
# install.sh FOLDER [PYTHON]: fastlloyd with all its extras in a new environment, from this bundle alone, without a network.
set -euo pipefail
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo "usage: install.sh FOLDER [PYTHON], got $# arguments; FOLDER is where the new environment goes" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
python=${2:-python3}
if [ -e "$1" ]; then
  echo "install.sh: expected a new folder, and $1 is there already" >&2
  exit 2
fi
(cd "$here" && sha256sum --check --quiet SHA256SUMS) || {
  echo "install.sh: expected the files that SHA256SUMS lists; copy the bundle again" >&2
  exit 2
}
wheel=$(echo "$here"/wheels/fastlloyd-*.whl)
"$python" -m venv "$1"
if ! "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --find-links "$here/wheels" "$wheel[all]"; then
  rm -rf "$1"
  echo "install.sh: these wheels are for the Python in the bundle's name (cp311 is 3.11); give that one as second argument" >&2
  exit 2
fi
echo "installed; try $1/bin/mpirun -n 3 $1/bin/python -m fastlloyd.client"
if [ -f "$here/image.tar.gz" ]; then
  echo "the container image: docker load < $here/image.tar.gz"
fi
