"""What one unit of privacy is in a run, in words, from the configuration alone; for plans, checks and reports.

Source: docs/privacy.md, "The promise".
"""

from __future__ import annotations

from collections.abc import Iterator

from fastlloyd.config import RunConfig
from fastlloyd.privacy.delta import large_delta
from fastlloyd.protocols.registry import find

_NOT_PRIVATE = ("lloyd", "kfed", "secfc", "vertical-plain")
_ROW = "one record, which is one row of one client"
_CLIENT = "all records of one client"
_USER = "all rows of one user at one client, a user of two clients counting as two"
_PERSON = "one person's row, which all parties' rows with the same id make up"
_SEVERAL = {
    _ROW: "somebody with g rows",
    _CLIENT: "somebody with records at g clients",
    _USER: "somebody who is a user of g clients",
    _PERSON: "somebody with g ids",
}


def privacy_unit(config: RunConfig) -> str | None:
    """Say what neighbours differ in; None for a protocol that promises no differential privacy.

    Raises
    ------
    ConfigError
        A setting of the protocol does not fit.
    """
    if config.protocol in _NOT_PRIVATE:
        return None
    if find(config.protocol).partition == "vertical":
        return _PERSON
    if config.protocol != "feddp":
        return _ROW
    # Only here: every start of every protocol would wait for these imports.
    from fastlloyd.data.mixture import MIXTURE
    from fastlloyd.protocols.feddp.settings import settings_from

    settings = settings_from(config.own_settings)
    if settings.privacy_level == "record":
        return _ROW
    generated = config.dataset is not None and config.dataset.partition(":")[0] == MIXTURE
    return _USER if generated or settings.users is not None else _CLIENT


def unit_sentence(config: RunConfig) -> str | None:
    """Say what one unit of privacy is, and what somebody has who stands behind several."""
    unit = privacy_unit(config)
    if unit is None:
        return None
    delta = "" if config.protocol == "sulloyd" else ", and a larger delta"
    return f"{unit}; {_SEVERAL[unit]} has g times the epsilon{delta}"


def size_conditions(config: RunConfig) -> tuple[str, ...]:
    """Say that N was counted, where it was: adding or removing a record would change it, and the noise with it."""
    if config.dataset is None or config.n_total is not None:
        return ()
    return ("that N, which is the number of records of this public data set, is the same for neighbours",)


def promise_lines(config: RunConfig, *, delta: float, n_total: int) -> Iterator[str]:
    """Say in a plan of a private run what the unit of privacy is, and whether delta is large."""
    yield f"unit of privacy: {unit_sentence(config)}"
    note = large_delta(delta, n_total)
    if note is not None:
        yield f"delta: {note}"
