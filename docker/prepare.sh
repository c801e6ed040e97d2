#!/usr/bin/env bash
# Builds the image and makes what a trial with Compose needs: a key for each party, one roster, a run file,
# and made-up records for three clients.   docker/prepare.sh [--mpi] [FOLDER]     (default docker/trial)
# --mpi builds the image of compose.mpi.yaml instead of that of compose.yaml; the trial is the same.
set -euo pipefail

image=fastlloyd
build=()
if [[ ${1-} == --mpi ]]; then
    image=fastlloyd-mpi build=(--target mpi)
    shift
fi
readonly image build clients=3
here=$(cd "$(dirname "$0")" && pwd)
fail() { echo "prepare.sh: $1" >&2; exit 2; }

[[ $# -le 1 ]] || fail "expected one folder at most, got $# words"
case ${1-} in -*) echo "usage: docker/prepare.sh [--mpi] [FOLDER]" >&2; exit 2 ;; esac
folder=${1:-$here/trial}
[[ ! -e $folder || -z $(ls -A "$folder") ]] || fail "expected no folder $folder yet, or an empty one; delete it for a new trial"
docker info >/dev/null 2>&1 || fail "expected a Docker engine that answers, got none; start it, or see \`docker info\`"
docker build -q -f "$here/Dockerfile" -t "$image" "${build[@]}" "$here/.." >/dev/null || fail "the image could not be built: see above"

# The containers run under the caller's number, so that the caller can read the results; never as root.
uid=$(id -u) gid=$(id -g)
((uid != 0)) || uid=10001 gid=10001

umask 077
mkdir -p "$folder"/public "$folder"/server/state "$folder"/results/server
for number in $(seq "$clients"); do
    mkdir -p "$folder/client-$number"/{data,state} "$folder/results/client-$number"
done
folder=$(cd "$folder" && pwd)
[[ $(id -u) != 0 ]] || chown -R "$uid:$gid" "$folder"

inside() { docker run --rm -i --network none --user "$uid:$gid" -v "$folder:/trial" -w /trial --entrypoint "$1" "$image" "${@:2}"; }

# A trial makes all keys in one place. In earnest each party makes its own and only the .pem leaves it.
inside bash -euo pipefail -s "$clients" <<'END'
umask 077
for rank in $(seq 0 "$1"); do
    name=server
    ((rank == 0)) || name=client-$rank
    fastlloyd keygen --name "$name" --rank "$rank" --prefix "$name/own" >/dev/null
    fastlloyd roster add --roster public/roster.toml --cert "$name/own.pem" >/dev/null
    fastlloyd init-state "$name/state" --rank "$rank" >/dev/null
done
fastlloyd roster check --roster public/roster.toml
END

inside python - "$clients" <<'END'
import sys
from pathlib import Path

import numpy as np

rng = np.random.default_rng(20240229)
centres = np.array([[35.0, 118.0, 23.0], [62.0, 142.0, 29.0], [71.0, 125.0, 21.0]])
for number in range(1, int(sys.argv[1]) + 1):
    group = rng.integers(0, 3, 1500)
    records = np.clip(rng.normal(centres[group], [5.0, 6.0, 1.5]), [18, 80, 12], [100, 200, 45])
    header = "age,pressure,bmi"
    np.savetxt(Path(f"client-{number}/data/records.csv"), records, "%.1f", ",", header=header, comments="")
END

# ssh knows users by name only, and in compose.mpi.yaml they run under the caller's number.
cat >"$folder/passwd" <<END
root:x:0:0:root:/root:/usr/sbin/nologin
fastlloyd:x:$uid:$gid:fastlloyd:/tmp:/bin/bash
END
cat >"$folder/public/bounds.csv" <<'END'
feature,lo,hi
age,18,100
pressure,80,200
bmi,12,45
END
cat >"$folder/public/run.toml" <<'END'
# The same file for all parties; what is each one's own stands in own.toml.
protocol = "fastlloyd-plus"
bounds = "/party/bounds.csv"
n_total = 4500
k = 3
epsilon = 1.0
masking = "threshold"
roster = "/party/roster.toml"
deadline = 60.0
END
cat >"$folder/public/own.toml" <<'END'
# Each party's own: one text does for all, since the paths are those inside each one's container.
data = "/data/records.csv"
key = "/own.key"
state_dir = "/state"
output = "/results"
END
[[ $(id -u) != 0 ]] || chown -R "$uid:$gid" "$folder"

env_file=$here/.env
[[ $folder == "$here/trial" ]] || env_file=$folder/.env
cat >"$env_file" <<END
COMPOSE_PROJECT_NAME=fastlloyd
FASTLLOYD_UID=$uid
FASTLLOYD_GID=$gid
FASTLLOYD_TRIAL=$folder
END
option=
[[ $folder == "$here/trial" ]] || option="--env-file $env_file "
echo "ready: $folder, image $image ($(docker image inspect --format '{{.Size}}' "$image" | awk '{printf "%.0f MB", $1 / 1e6}'))"
if [[ $image == fastlloyd-mpi ]]; then
    echo "next:  docker-compose -p fastlloyd-mpi ${option}-f docker/compose.mpi.yaml up --exit-code-from server"
else
    echo "next:  docker-compose ${option}-f docker/compose.yaml up --exit-code-from server"
fi
