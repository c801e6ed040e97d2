#!/usr/bin/env bash
# The container of one MPI rank (docker/compose.mpi.yaml):
#   rank wait               a client's: make a host key, then let the server's container in until stopped
#   rank run HOSTS [flags]  the server's: make a key, start a rank on each host, leave with the run's exit code
#   rank healthy            for health checks of a client's: does its ssh listen?
# Private keys stay in this container's memory. The public ones lie in a volume that it shares with the other side alone.
set -euo pipefail

readonly keys=/tmp/.ssh
readonly port=2222

make_key() {
    install -d -m 700 "$keys"
    rm -f "$keys/$1" "$keys/$1.pub"
    ssh-keygen -q -t ed25519 -N '' -C "$HOSTNAME" -f "$keys/$1"
}

# A file that appears whole or not at all. The other side can write there too: what it has put in the place is no way
# to a file of this container.
publish() { rm -f "$1.new" && dd of="$1.new" conv=excl status=none && mv -T "$1.new" "$1"; }

meet() { # CLIENT
    local shared=/keys/$1 key
    # Of an ordinary file: a link leads elsewhere, a pipe waits for ever. One line: another one could speak for another client.
    key=$(dd if="$shared/host.pub" iflag=nofollow,nonblock bs=4096 count=1 status=none 2>/dev/null | tr -d '\0' | head -n 1) || true
    if [[ -z $key ]]; then
        echo "rank: expected the host key of $1 in an ordinary file $shared/host.pub, found none: does it run?" >&2
        exit 3
    fi
    printf 'restrict %s\n' "$(<"$keys/id_ed25519.pub")" | publish "$shared/server.pub"
    printf '[%s]:%d %s\n' "$1" "$port" "$key" >>"$keys/known_hosts"
}

# "sent received": bytes on the interface of a container since it was started.
counters() { # HOST
    local there=(cat /sys/class/net/eth0/statistics/tx_bytes /sys/class/net/eth0/statistics/rx_bytes)
    # shellcheck disable=SC2029
    if [[ $1 == "$HOSTNAME" ]]; then "${there[@]}"; else ssh "$1" "${there[*]}"; fi | paste -sd ' '
}

run() {
    local names=$1 code=0 told='' child host sent received
    local -a hosts
    local -A before
    shift
    IFS=, read -ra hosts <<<"$names"
    make_key id_ed25519
    rm -f "$keys/known_hosts"
    # Before the image's own settings, which are for pods that nobody knows.
    printf 'IdentityFile %s/id_ed25519\nIdentitiesOnly yes\nStrictHostKeyChecking yes\nUserKnownHostsFile %s/known_hosts\n' \
        "$keys" "$keys" >"$keys/config"
    for host in "${hosts[@]:1}"; do meet "$host"; done
    for host in "${hosts[@]}"; do before[$host]=$(counters "$host"); done

    # As process 1 the shell would ignore signals without a handler; with one they end `wait` at once.
    trap 'told=yes' TERM INT HUP
    fastlloyd run --hosts "$names" "$@" &
    child=$!
    wait "$child" || code=$?
    if [[ -n $told ]]; then
        # Compose stops everything when a container is lost: the run ends by itself then, and should say why.
        for _ in {1..50}; do kill -0 "$child" 2>/dev/null && sleep 0.1; done
        kill -TERM "$child" 2>/dev/null || true
        while code=0; do
            wait "$child" || code=$?
            kill -0 "$child" 2>/dev/null || break
        done
    fi
    trap - TERM INT HUP
    ((code == 0)) || exit "$code"

    for host in "${hosts[@]}"; do
        read -r sent received <<<"$(counters "$host")"
        printf '%s %d %d\n' "$host" "$((sent - ${before[$host]% *}))" "$((received - ${before[$host]#* }))"
    done | python -c '
import sys
from pathlib import Path

from fastlloyd.supervise.shaped import note_wire_bytes

rows = [line.split() for line in sys.stdin]
for host, sent, received in rows:
    print(f"network   {host}: {int(sent):,} bytes sent, {int(received):,} received on its interface")
note_wire_bytes(Path(sys.argv[1]), sum(int(sent) for _, sent, _ in rows))
' "${RESULTS:-/results}"
}

healthy() {
    # 0A is LISTEN. Looking here instead of connecting keeps strangers out of the log.
    local listens
    printf -v listens ':%04X' "$port"
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v end="$listens" '
        $4 == "0A" && substr($2, length($2) - 4) == end { found = 1 } END { exit !found }'
}

case ${1:-} in
    wait)
        make_key host
        publish /keys/host.pub <"$keys/host.pub"
        exec /usr/sbin/sshd -D -e -f /etc/ssh/sshd_config_ranks
        ;;
    run)
        [[ $# -ge 2 ]] || { echo "rank: expected HOSTS after run" >&2; exit 2; }
        trap 'exit 3' TERM INT
        await-shapers &
        wait $!
        run "${@:2}"
        ;;
    healthy) healthy ;;
    *) echo "rank: expected wait, run or healthy, got '${1-}'" >&2; exit 2 ;;
esac
