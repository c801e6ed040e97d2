"""Flags as they are typed."""

from __future__ import annotations

import pytest

from fastlloyd.cli.options import join_negative_values, name_list


@pytest.mark.parametrize(
    ("argv", "joined"),
    [
        (["--bounds", "-1,1"], ["--bounds=-1,1"]),
        (["--bounds", "-.5,1", "--k", "3"], ["--bounds=-.5,1", "--k", "3"]),
        (["--bounds", "0,1"], ["--bounds", "0,1"]),
        (["--bounds", "--k", "3"], ["--bounds", "--k", "3"]),
        (["--bounds=-1,1"], ["--bounds=-1,1"]),
        (["--bounds"], ["--bounds"]),
        (["--delta", "-1"], ["--delta", "-1"]),
        (["--", "--bounds", "-1,1"], ["--", "--bounds", "-1,1"]),
        ([], []),
    ],
)
def test_only_negative_values_of_the_named_flags_are_joined(argv, joined):
    assert join_negative_values(argv, ("--bounds",)) == joined


def test_name_list():
    assert name_list("a, b ,c") == ("a", "b", "c")
    assert name_list("") == ()
