#!/usr/bin/env bash
# One command to a result: a server and three clients, one container per MPI rank.   docker/mpi.sh [flags of a run]
# Prepares docker/trial first if it is not there. FASTLLOYD_TRIAL names another folder, FASTLLOYD_NETWORK a profile
# of scripts/netem/profiles.toml for the network (compose.netem.yaml).
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${FASTLLOYD_TRIAL:-$here/trial}
[[ -e $folder/passwd ]] || "$here/prepare.sh" --mpi "$folder"
# A trial of `prepare.sh` without --mpi has the other image.
docker image inspect fastlloyd-mpi >/dev/null 2>&1 \
    || docker build -q -f "$here/Dockerfile" -t fastlloyd-mpi --target mpi "$here/.." >/dev/null
settings=$here/.env
[[ $folder == "$here/trial" ]] || settings=$folder/.env

compose=(docker compose)
"${compose[@]}" version >/dev/null 2>&1 || compose=(docker-compose)
compose+=(--env-file "$settings" -f "$here/compose.mpi.yaml")
# Apart from the project of compose.yaml: its services have the same names.
export COMPOSE_PROJECT_NAME=${COMPOSE_PROJECT_NAME:-fastlloyd-mpi} FLAGS="$*"
if [[ -n ${FASTLLOYD_NETWORK:-} ]]; then
    compose+=(-f "$here/compose.netem.yaml")
    "${compose[@]}" down  # a shaper of before would hold on to the network of a container that is gone
fi

code=0
"${compose[@]}" up --exit-code-from server || code=$?
# Compose may stop printing before the server has spoken.
if ((code != 0)); then
    echo "mpi.sh: the run ended with code $code; the last words of the server's container:" >&2
    "${compose[@]}" logs --no-color --tail 6 server >&2 || true
fi
exit "$code"
