"""One record, or two: every protocol runs or refuses with a sentence, and spends nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fastlloyd.errors import ConfigError, DataError, RangeError
from fastlloyd.protocols.registry import names
from fastlloyd.run.simulation import run_together
from tests.contracts.whole_run import CLIENTS, config


@pytest.mark.parametrize("protocol", names())
def test_few_records_run_or_are_refused_with_a_sentence(protocol: str, tmp_path: Path) -> None:
    for records in (1, 2, 3):
        path = tmp_path / f"{records}.csv"
        path.write_text("a,b\n" + "1,2\n3,1\n2,2\n"[: 4 * records])
        for k in (1, 2):
            few = replace(config(protocol), dataset=str(path), k=k)
            try:
                run_together(few, CLIENTS.get(protocol, 2))
            except (ConfigError, DataError, RangeError) as error:
                assert len(str(error)) > 40
