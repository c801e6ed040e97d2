from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "scripts" / "netem"
sys.path.insert(0, str(FOLDER))

from shaping import cli, kernel, namespace, probe, setup, verdict  # noqa: E402
from shaping.egress import VIRTIO_HEADER_BYTES, Egress  # noqa: E402
from shaping.failure import MachineError, NetemError, UsageError  # noqa: E402
from shaping.plan import Plan, namespaces_of  # noqa: E402
from shaping.probe import Delays, Losses  # noqa: E402
from shaping.profile import Profile, find_profile, load_profiles  # noqa: E402

NETEM = str(FOLDER / "netem")
# Vertical HE k-means, Table 1: bandwidth, delay, jitter, loss, burst, quantum, r2q.
TABLE_1 = {
    "LAN500": (500, 1, 0.2, 0, None, 1500, 10),
    "LAN1000": (1000, 0.3, 0.02, 0, None, 3000, 15),
    "LAN10000": (10000, 0.1, 0.01, 0, None, 9000, 25),
    "regWAN100": (100, 20, 15, 0.1, 500, 1200, 10),
    "regWAN250": (250, 15, 5, 0.1, 1000, 1500, 20),
    "regWAN500": (500, 10, 2, 0.1, 1500, 1500, 25),
    "ccWAN50": (50, 150, 25, 0.5, 500, 1000, 10),
    "ccWAN100": (100, 120, 15, 0.3, 1000, 1000, 15),
    "ccWAN200": (200, 100, 10, 0.2, 2000, 1200, 20),
    "crpWAN500": (500, 50, 5, 0.1, 1000, 1500, 15),
}
MS = 1_000_000
PACKET = bytes(VIRTIO_HEADER_BYTES + 1500)
FRAME_BYTES = 1514


def profile(**keys: object) -> Profile:
    return Profile(name="trial", description="", **keys)  # type: ignore[arg-type]


# Profiles


def test_profiles_are_table_1_and_the_two_of_fastlloyd() -> None:
    profiles = load_profiles()
    assert set(profiles) == {"lan", "wan", *TABLE_1}
    for name, expected in TABLE_1.items():
        one = profiles[name]
        assert expected == (
            one.rate_mbit,
            one.delay_ms,
            one.jitter_ms,
            one.loss_percent,
            one.burst_kbyte,
            one.quantum_bytes,
            one.r2q,
        )
    assert (profiles["lan"].delay_ms, profiles["wan"].delay_ms) == (0.25, 25)
    assert profiles["lan"].rate_mbit is None


def test_queue_holds_what_is_on_its_way_at_the_full_rate() -> None:
    for one in load_profiles().values():
        if one.rate_bytes_s is not None:
            assert one.queue_limit * 1500 > one.rate_bytes_s * (one.delay_ms + one.jitter_ms) / 1000 + one.burst_bytes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a]\nspeed = 3", "unknown speed"),
        ("[a]\ndelay_ms = 1\njitter_ms = 2", "lower jitter_ms"),
        ("[a]\nloss_percent = 101", "between 0 and 100"),
        ("[a]\nrate_mbit = 'fast'", "got 'fast'"),
        ("[a]\nr2q = 1.5", "got 1.5"),
        ("a = 3", "expected a table"),
        ("[a", "expected a TOML file"),
    ],
)
def test_wrong_profile_files_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        load_profiles(path)


def test_tc_commands_carry_every_column_of_the_table() -> None:
    assert kernel.discipline_commands(find_profile("ccWAN50"), "eth0") == [
        "qdisc add dev eth0 root handle 1: htb default 1 r2q 10",
        "class add dev eth0 parent 1: classid 1:1 htb rate 50000000bit ceil 50000000bit "
        "burst 512000 cburst 512000 quantum 1000",
        "qdisc add dev eth0 parent 1:1 handle 10: netem limit 2141 delay 150000us 25000us loss random 0.5%",
    ]
    assert kernel.discipline_commands(find_profile("lan"), "x") == [
        "qdisc add dev x root handle 10: netem limit 100000 delay 250us"
    ]


# The emulator's queue


def drain(queue: Egress, now_ns: float) -> list[bytes]:
    return [packet for _, packet in queue.release(now_ns, 1_000_000)]


def test_packets_leave_after_the_delay_and_in_order() -> None:
    queue = Egress(profile(delay_ms=2), random.Random(1).random)
    packets = [bytes([number]) * 60 for number in range(50)]
    queue.accept(0, [(7, packet) for packet in packets])
    assert queue.next_ns() == 2 * MS
    assert drain(queue, 2 * MS - 1) == []
    assert queue.release(2 * MS, 20) == [(7, packet) for packet in packets[:20]]
    assert drain(queue, 2 * MS) == packets[20:]
    assert len(queue) == 0
    assert queue.next_ns() == float("inf")


def test_jitter_is_uniform_and_lets_packets_overtake() -> None:
    queue = Egress(profile(delay_ms=10, jitter_ms=4, queue_packets=10_000), random.Random(2).random)
    queue.accept(0, [(7, number.to_bytes(2, "big") * 30) for number in range(10_000)])
    assert drain(queue, 6 * MS - 1) == []
    early = drain(queue, 10 * MS)
    late = drain(queue, 14 * MS)
    assert len(early) + len(late) == 10_000
    assert abs(len(early) - 5000) < 5 * 50  # five standard errors: one false alarm in 1.7 million
    assert early != sorted(early)


def test_losses_follow_the_profile() -> None:
    queue = Egress(profile(loss_percent=3, queue_packets=100_000), random.Random(3).random)
    queue.accept(0, [(7, PACKET)] * 20_000)
    low, high = verdict.binomial_range(20_000, 0.03, 1e-6)
    assert low <= 20_000 - len(queue) <= high


def test_a_full_queue_drops_what_comes_last() -> None:
    queue = Egress(profile(delay_ms=1, queue_packets=3), random.Random(4).random)
    queue.accept(0, [(7, bytes([number]) * 60) for number in range(5)])
    assert [packet[0] for packet in drain(queue, MS)] == [0, 1, 2]


@pytest.mark.parametrize("step_ns", [10_000, 200_000, 3_000_000])
def test_rate_holds_however_late_the_process_wakes(step_ns: int) -> None:
    link = profile(rate_mbit=100, burst_kbyte=100, queue_packets=100_000)
    queue = Egress(link, random.Random(5).random)
    queue.accept(0, [(7, PACKET)] * 20_000)
    first = len(drain(queue, 0))
    assert first == 102_400 // FRAME_BYTES + 1
    sent, now_ns = 0, 0
    while now_ns < 900 * MS:
        now_ns += step_ns
        sent += len(drain(queue, now_ns))
    # Two packets: the one that overdraws the bucket, and the one that the last step has not reached.
    assert abs(sent * FRAME_BYTES * 8 / (now_ns / 1e9) - 100e6) <= 2 * FRAME_BYTES * 8 / 0.9


def test_the_bucket_fills_again_while_nothing_is_sent() -> None:
    queue = Egress(profile(rate_mbit=100, burst_kbyte=100), random.Random(6).random)
    queue.accept(0, [(7, PACKET)] * 68)
    assert len(drain(queue, 0)) == 68
    queue.accept(1000 * MS, [(7, PACKET)] * 100)
    assert len(drain(queue, 1000 * MS)) == 68


# Verdicts


def test_binomial_range_is_exact() -> None:
    # Ten throws of a coin: P(0) = P(10) = 1/1024 and P(<= 1) = 11/1024.
    assert verdict.binomial_range(10, 0.5, 2 / 1025) == (0, 10)
    assert verdict.binomial_range(10, 0.5, 2 / 1023) == (1, 9)
    assert verdict.binomial_range(10, 0.5, 2 * 12 / 1024) == (2, 8)
    assert verdict.binomial_range(500, 0, 1e-6) == (0, 0)


@pytest.mark.parametrize(("shift_ms", "good"), [(0.0, True), (0.14, True), (0.16, False), (-0.16, False)])
def test_delay_tolerance_is_a_tenth_of_a_millisecond_and_five_per_cent(shift_ms: float, good: bool) -> None:
    values = [1 + shift_ms + 0.2 * (2 * number / 999 - 1) for number in range(1000)]
    delay, jitter = verdict.delay_rows(find_profile("LAN500"), Delays(values, 1000, 0))
    assert delay.verdict == ("ok" if good else "out of tolerance")
    assert jitter.seen == pytest.approx(0.2, abs=0.001)


def test_silence_is_out_of_tolerance() -> None:
    rows = verdict.delay_rows(find_profile("lan"), Delays([], 1000, 0))
    assert [row.verdict for row in rows] == ["out of tolerance"]
    assert verdict.loss_row(find_profile("lan"), Losses(1000, 1)).verdict == "out of tolerance"


@pytest.mark.parametrize(
    ("datagrams", "stream", "expected"),
    [(100, 20, "ok"), (90, 99, "ok"), (90, 20, "out of tolerance"), (100, 106, "out of tolerance")],
)
def test_rate_is_judged_by_the_faster_transfer(datagrams: float, stream: float, expected: str) -> None:
    assert verdict.rate_rows(find_profile("regWAN100"), datagrams, stream)[0].verdict == expected


# Names and the command line


def test_namespaces_belong_to_one_set_up_only() -> None:
    listed = ["a-h1", "a-sw", "ab-h1", "a-h1x", "xa-h2", "a-h12", "other"]
    assert namespaces_of("a", listed) == ["a-h1", "a-sw", "a-h12"]


@pytest.mark.parametrize("text", ["2", "h2", "x-h2", "10.77.0.2"])
def test_hosts_are_found_by_any_of_their_names(text: str) -> None:
    assert Plan("x", find_profile("lan"), 3).host(text).number == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["up", "fast"], 2),
        (["up", "lan", "--hosts", "0"], 2),
        (["up", "lan", "--name", "Not-Good"], 2),
        (["exec", "h1", "--name", "nosuch", "--", "true"], 2),
        (["exec", "h1"], 2),
        (["status", "--name", "nosuch"], 1),
    ],
)
def test_exit_codes(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == code
    said = capsys.readouterr()
    assert said.err.startswith("netem: ") or "not up" in said.out


def test_without_root_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MachineError, match="as root"):
        setup.up(Plan("x", find_profile("lan"), 2), None, profiles_file=FOLDER / "profiles.toml")


# Real namespaces


def namespaces_work() -> bool:
    # Each of pytest's workers asks, all at the same moment: under one name the first alone could make it.
    trial = f"trial{os.getpid()}"
    try:
        namespace.check_machine()
        namespace.call("ip", "netns", "add", trial)
        namespace.call("ip", "netns", "del", trial)
    except NetemError:
        return False
    return Path("/dev/net/tun").exists()


real = pytest.mark.skipif(not namespaces_work(), reason="needs root, iproute2, namespaces and /dev/net/tun")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([NETEM, *words], capture_output=True, text=True, timeout=60)


def left_of(name: str) -> list[str]:
    return namespaces_of(name, namespace.listed())


@pytest.fixture
def name() -> Iterator[str]:
    # A name per process: several test runs may share the machine.
    chosen = f"t{os.getpid()}"
    yield chosen
    setup.down(chosen)


@real
def test_a_set_up_from_up_to_down(name: str) -> None:
    made = run("up", "lan", "--hosts", "3", "--name", name, "--backend", "emulator", "--json")
    assert made.returncode == 0, made.stderr
    document = json.loads(made.stdout)
    assert document["profile"] == "lan"
    assert document["working"]
    assert document["hosts"][2] == {
        "host": 3,
        "hostname": "h3",
        "namespace": f"{name}-h3",
        "address": "10.77.0.3",
        "interface": "eth0",
        "backend": "emulator",
        "processes": 0,
    }
    again = run("up", "lan", "--name", name)
    assert again.returncode == 3
    assert "netem down" in again.stderr

    said = run("exec", "--name", name, "h2", "--", "sh", "-c", "hostname; ip -br addr show eth0; exit 7")
    assert said.returncode == 7
    assert said.stdout.split()[0] == "h2"
    assert "10.77.0.2/24" in said.stdout

    far = run("exec", "--name", name, "1", "--", document["remote_shell"], "10.77.0.3", "hostname;", "exit", "5")
    assert (far.returncode, far.stdout) == (5, "h3\n")

    assert run("status", "--name", name, "--json").returncode == 0
    assert run("down", "--name", name).stdout == f"{name}: removed\n"
    assert left_of(name) == []
    assert run("down", "--name", name).stdout == f"{name}: nothing there\n"


@real
def test_remote_shell_refuses_to_leave_the_set_up(name: str) -> None:
    outside = subprocess.run([FOLDER / "nsrsh", "10.77.0.1", "true"], capture_output=True, text=True, timeout=20)
    assert outside.returncode == 2
    assert run("up", "lan", "--hosts", "1", "--name", name, "--backend", "emulator").returncode == 0
    inside = run("exec", "--name", name, "h1", "--", str(FOLDER / "nsrsh"), "10.77.0.9", "true")
    assert inside.returncode == 2
    assert "expected a host of the set-up" in inside.stderr


@real
def test_emulator_delays_loses_and_counts(name: str, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text("[bad]\ndelay_ms = 3\nloss_percent = 10\n")
    made = setup.up(Plan(name, find_profile("bad", own), 2), "emulator", profiles_file=own)
    delays = probe.measure_delays(made, 60, 0.002)
    # The quickest of 120: on a shared machine any single probe may wait for the processor.
    assert 3 * 0.95 - 0.1 <= min(delays.values_ms) <= 3 * 1.05 + 0.1
    before = made.counters()["hosts"]
    losses = probe.measure_losses(made, 2000)
    low, high = verdict.binomial_range(losses.sent, 0.10, 1e-6)
    assert low <= losses.lost <= high
    after = made.counters()["hosts"]
    # 60 bytes of payload under UDP, IPv4 and Ethernet headers.
    assert after[0]["tx_packets"] - before[0]["tx_packets"] == 2000
    assert after[0]["tx_bytes"] - before[0]["tx_bytes"] == 2000 * (56 + 8 + 20 + 14)


@real
def test_two_set_ups_do_not_meet(name: str) -> None:
    other = f"{name}b"
    try:
        for one in (name, other):
            assert run("up", "lan", "--hosts", "2", "--name", one, "--backend", "emulator").returncode == 0
        assert run("down", "--name", name).returncode == 0
        assert len(left_of(other)) == 3
        assert run("status", "--name", other).returncode == 0
    finally:
        setup.down(other)


@real
def test_down_ends_what_still_runs_on_a_host(name: str) -> None:
    assert run("up", "lan", "--hosts", "1", "--name", name, "--backend", "emulator").returncode == 0
    words = [NETEM, "exec", "--name", name, "h1", "--", "sh", "-c", "trap '' TERM; echo on; while :; do read x; done"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stubborn:
        assert stubborn.stdout is not None
        assert stubborn.stdout.readline() == "on\n"
        assert json.loads(run("status", "--name", name, "--json").stdout)["setups"][0]["hosts"][0]["processes"] == 1
        assert run("down", "--name", name).returncode == 0
        assert stubborn.wait(10) == -signal.SIGKILL
    assert left_of(name) == []


@real
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_up_that_is_killed_half_way_can_be_removed(name: str, number: int) -> None:
    words = [NETEM, "up", "lan", "--hosts", "60", "--name", name, "--backend", "emulator"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 20
        while len(left_of(name)) < 3:
            assert time.monotonic() < deadline
        process.send_signal(number)
        process.wait(30)
    if number == signal.SIGTERM:
        assert process.returncode == 128 + signal.SIGTERM
        assert left_of(name) == []
    else:
        assert run("status", "--name", name).returncode == 1
        assert left_of(name) != []
        assert run("down", "--name", name).stdout == f"{name}: removed\n"
        assert left_of(name) == []


@real
def test_a_dead_emulator_is_seen(name: str) -> None:
    assert run("up", "lan", "--hosts", "2", "--name", name, "--backend", "emulator").returncode == 0
    namespace.empty([f"{name}-sw"])
    shown = run("status", "--name", name)
    assert shown.returncode == 1
    assert "BROKEN" in shown.stdout
    assert run("counters", "--name", name).returncode == 3


@real
def test_the_kernel_shapes_where_it_can_and_says_so_where_not(name: str) -> None:
    made = run("up", "ccWAN50", "--hosts", "2", "--name", name, "--backend", "netem", "--json")
    if made.returncode == 0:
        assert json.loads(made.stdout)["backend"] == "netem"
        shown = namespace.call("tc", "-n", f"{name}-h2", "qdisc", "show", "dev", "eth0")
        assert "delay 150ms  25ms loss 0.5%" in shown
    else:
        assert made.returncode == 3
        assert "expected a kernel with sch_netem" in made.stderr
        assert left_of(name) == []


@real
def test_real_interfaces_need_their_name_and_must_exist() -> None:
    refused = run("up", "lan", "--interface", "nosuch0")
    assert refused.returncode == 3
    assert "expected an interface of this machine" in refused.stderr
