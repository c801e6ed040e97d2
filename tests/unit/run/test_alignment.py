"""The table [vertical]: how records are told apart, and that what all parties compare of it keeps its bytes."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from fastlloyd.data.bounds import Bounds
from fastlloyd.errors import ConfigError
from fastlloyd.party.option import read_settings
from fastlloyd.protocols.vertical_dp.plan import PublicParameters
from fastlloyd.run.config import VERTICAL, RunConfig
from fastlloyd.run.inputs import PublicInputs
from fastlloyd.run.vertical import Alignment, VerticalInputs


@pytest.mark.parametrize(
    "values,sentence",
    [
        ({"align": "guess"}, "--set vertical.align: expected 'check' or 'intersect', got 'guess'"),
        ({"id": ""}, "--set vertical.id: expected the name of a column, got ''"),
        ({"id": 3}, "--set vertical.id: expected text, got 3"),
        ({"key": "id"}, "vertical has no setting 'key'; it has align, id, widths"),
    ],
)
def test_a_wrong_table_is_refused(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(Alignment(), VERTICAL, values)
    assert str(caught.value) == sentence


def test_parties_compare_the_alignment_by_its_fields_on_the_wire() -> None:
    config = RunConfig(protocol="vertical-dp")
    public = PublicParameters(
        protocol="vertical-dp", clients=2, k=2, n_total=50, epsilon=1.0, delta=None, seed=0, settings={}
    )
    alignment = read_settings(Alignment(), VERTICAL, {"align": "intersect", "id": "ssn"})
    bounds = Bounds(np.array([-1.0]), np.array([1.0]))
    common = VerticalInputs(public=public, bounds=bounds, caps=(), dataset=None, splits=None, alignment=alignment)
    plain = PublicInputs.digest(common, config, b"roster")
    stated = b'{"align": "intersect", "id_column": "ssn"}'
    assert common.digest(config, b"roster") == hashlib.sha256(plain + stated).digest()
