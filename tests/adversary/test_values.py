"""Values of the server's messages, changed: in memory, over TCP and under mpirun, no honest party ends in an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastlloyd.protocols.kfed.messages import LocalCenters
from tests.adversary.lie import Lie
from tests.adversary.plans import MORE, build
from tests.adversary.play import PLAYS
from tests.adversary.values import campaign_in_memory, campaign_of_processes, in_memory


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stage")
    build(folder)
    return folder


@pytest.mark.parametrize(
    ("plays", "values"),
    [
        (["fastlloyd", "feddp", "kfed", "secfc", "vertical-plain"], 10),
        pytest.param([*PLAYS, *MORE], 1000, marks=[pytest.mark.slow, pytest.mark.timeout(3000)]),
    ],
)
def test_no_value_of_a_message_is_an_unforeseen_error(plays: list[str], values: int, stage: Path) -> None:
    ends, faults = campaign_in_memory(plays, stage, values, seed=1)
    assert not faults
    assert ends.total() > 0.8 * values and any(not end.endswith("done") for end in ends)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("transport", "values"), [("tcp", 300), ("mpi", 100)])
def test_no_value_of_a_message_is_one_to_a_process(transport: str, values: int, stage: Path, tmp_path: Path) -> None:
    kept = campaign_of_processes(transport, [*PLAYS], stage, tmp_path, values, seed=1)
    assert len(kept) == values and not [each for each in kept if each["faults"]]
    assert sum(bool(each["told"]) for each in kept) > 0.8 * values


def test_a_wrong_name_is_noticed(stage: Path) -> None:
    """A client cuts its message, and is named: as a lie of the server's that is a wrong name."""
    lie = Lie(rank=1, act="cut", type=LocalCenters.TYPE)
    end, heard = in_memory("kfed", stage, lie)
    assert heard and end.startswith("fault") and end.endswith("names another")
