"""FedDP-KMeans with threshold masks: the server sees noisy sums, clients may be lost, the noise is the planned one."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError
from fastlloyd.lifecycle.rounds import ClientRounds
from fastlloyd.protocols.feddp import server as feddp_server
from fastlloyd.protocols.feddp.messages import MaskedStatistic
from fastlloyd.run.config import RunConfig
from fastlloyd.run.session import find_protocol
from fastlloyd.run.simulation import InMemory, run_together
from fastlloyd.testing.whole_run import Sites
from fastlloyd.wire.header import Header, PartyId

WIDE = "mixture:clients=24,points=40,d=48,k=3,variance=0.004,uniform=8,server=1500"


def config(level: str = "record", **more: Any) -> RunConfig:
    values: dict[str, Any] = {"dataset": WIDE, "k": 3, "epsilon": 5.0, "rounds": 1, "ring_bits": 64, **more}
    return RunConfig(protocol="feddp", masking="threshold", settings={"feddp": {"privacy_level": level}}, **values)


def lose(*missing: tuple[int, int]) -> Any:
    """Drop the vectors of clients in steps."""

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes | None:
        lost = header.type == MaskedStatistic.TYPE and (sender.rank, header.round) in missing
        return None if lost else body

    return tap


def included(ended: InMemory) -> list[list[int]]:
    """Who is in each step, as all parties say it."""
    said = [outcome.result.common["rounds"] for outcome in ended.outcomes.values()]  # type: ignore[union-attr]
    assert all(each == said[0] for each in said)
    return [entry["clients_included"] for entry in said[0]]


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> dict[int, dict[int, NDArray[np.int64]]]:
    """By step, what each client computed, and under 0 what the server saw of the sum."""
    seen: dict[int, dict[int, NDArray[np.int64]]] = defaultdict(dict)
    masked, answer = ClientRounds.masked, feddp_server._Server.answer

    def noted(self: Any, t: int, up: Any, vector: Callable[[], NDArray[np.int64]], down: Any, **more: Any) -> Any:
        def note() -> NDArray[np.int64]:
            seen[t][self._me.rank] = vector()
            return seen[t][self._me.rank]

        return masked(self, t, up, note, down, **more)

    def answered(self: Any, t: int, noisy: NDArray[np.int64], among: tuple[PartyId, ...]) -> Any:
        seen[t][0] = noisy
        return answer(self, t, noisy, among)

    monkeypatch.setattr(ClientRounds, "masked", noted)
    monkeypatch.setattr(feddp_server._Server, "answer", answered)
    return seen


@pytest.mark.parametrize("level", ["record", "client"])
@pytest.mark.parametrize("lost", [(), (4,), (1, 4)])
def test_the_server_s_sums_have_the_planned_noise_whoever_is_lost(
    level: str, lost: tuple[int, ...], sums: dict[int, dict[int, NDArray[np.int64]]]
) -> None:
    """All together s^2 u / (u - t), of Gaussian and of Laplace noise; more than 1,000 numbers each (six deviations)."""
    asked = config(level)
    plan = find_protocol("feddp").planned(asked, 6, None)
    assert plan.numbers.lost == 2
    ended = run_together(asked, 6, tap=lose(*((rank, t) for rank in lost for t in (0, 1, 3))))
    kept = [rank for rank in range(1, 7) if rank not in lost]
    assert included(ended) == [kept, kept, list(range(1, 7)), kept]
    u, t = len(kept), plan.known_shares
    for step, scale in ((0, plan.rounds[0].sigma), (1, np.sqrt(2.0) * plan.rounds[1].scale)):
        noise = sums[step][0] - sum(sums[step][rank] for rank in kept)
        assert len(noise) > 1000
        planned = scale**2 * u / (u - t)
        assert np.mean(noise.astype(float) ** 2) == pytest.approx(planned, rel=6 * np.sqrt(5 / len(noise)))
    assert plan.rounds[0].sigma ** 2 * 6 / 3 > 1.5 * plan.rounds[0].sigma ** 2 * 6 / 5, "what is not taken off shows"


def test_k_may_be_chosen_and_the_later_vectors_have_its_length() -> None:
    asked = config(dataset="mixture:clients=24,points=100,d=4,k=3,variance=0.004,uniform=8", k=6, choose_k=True)
    ended = run_together(asked, 4, tap=lose((2, 2)))
    assert included(ended)[2] == [1, 3, 4]
    found = [outcome.result.centroids for outcome in ended.outcomes.values()]  # type: ignore[union-attr]
    assert all(np.array_equal(each, found[0]) for each in found)


def test_fewer_than_t_end_the_run() -> None:
    with pytest.raises(Exception, match="sent nothing in round 1"):
        run_together(config(dataset="iris"), 4, tap=lose((2, 1), (3, 1)))


def test_pairwise_masks_stay_the_default_and_common_masks_mean_them() -> None:
    plain = RunConfig(protocol="feddp", dataset="iris")
    assert find_protocol("feddp").planned(plain, 3, None).masking == "pairwise"
    with pytest.raises(ConfigError, match="or use --masking threshold"):
        find_protocol("feddp").planned(RunConfig(protocol="feddp", dataset="iris", min_clients=2), 3, None)


@pytest.mark.process
def test_over_tcp_the_others_go_on_without_a_killed_client(tmp_path: Path) -> None:
    asked = config(dataset="iris", rounds=3)
    with Sites(tmp_path, asked, 4, "--deadline", "5", "--delay", "0.1") as sites:
        sites.until((sites.run_folder(1) / "reply-1").exists)
        sites.kill(4)
        assert sites.finish()[:4] == [0] * 4, sites.said
    rounds = json.loads((tmp_path / "1" / "result" / "report.json").read_text())["rounds"]
    assert rounds[0]["clients_included"] == [1, 2, 3, 4] and rounds[-1]["clients_included"] == [1, 2, 3]


@pytest.mark.parametrize("protocol", ["fastlloyd", "feddp"])
def test_above_200_clients_a_plan_is_refused_and_common_masks_are_named(protocol: str) -> None:
    many = RunConfig(protocol=protocol, masking="threshold", k=3, n_total=100_000)
    with pytest.raises(ConfigError, match="at most 200 clients, got 201; use common masks, with aggregators"):
        find_protocol(protocol).planned(many, 201, 3)


def test_a_plan_says_who_may_be_lost_and_counts_the_boxes() -> None:
    text = "\n".join(map(str, find_protocol("feddp").plan_lines(config(), 6, None)))
    assert "T = 4 of 6 clients open a round, D = 2 may be lost in it" in text
    assert f"outer product: {2 * 8 * 48 * 49 // 2:,} bytes up from each client" in text
