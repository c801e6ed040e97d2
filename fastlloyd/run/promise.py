"""What one unit of privacy is in a run, in words, from the configuration alone; for plans, checks and reports.

Source: docs/privacy.md, "The promise".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fastlloyd.errors import format_count
from fastlloyd.masking.threshold.numbers import Numbers, least_threshold
from fastlloyd.privacy.calibration import large_delta
from fastlloyd.report.outlook import PlanLine
from fastlloyd.run.config import RunConfig
from fastlloyd.run.session import find_protocol

ROW = "one record, which is one row of one client"
CLIENT = "all records of one client"
USER = "all rows of one user at one client, a user of two clients counting as two"
MERGED = "all rows of one person at one client, merged by --unit, a person at two clients counting as two"
PERSON = "one person's row, which all parties' rows with the same id make up"
# In a few words, and who has g times the epsilon.
_WORDS = {
    ROW: ("one record", "somebody with g rows"),
    MERGED: (
        "all rows of one person at one client",
        "somebody with rows at g clients, or under g names in the column of --unit,",
    ),
    CLIENT: ("all records of one client", "somebody with records at g clients"),
    USER: ("all rows of one user at one client", "somebody who is a user of g clients"),
    PERSON: ("one person's row", "somebody with g ids"),
}


def record_unit(config: RunConfig) -> str:
    """Say what one record is, for a protocol whose neighbours differ in one."""
    return ROW if config.unit is None else MERGED


def short_unit(unit: str) -> str:
    """Return a unit of privacy in a few words."""
    return _WORDS[unit][0]


def plan_words(config: RunConfig, clients: int, d: int | None) -> dict[str, str]:
    """Return the named lines of a plan by their names: `expected` above all; a package's plain sentences have none.

    The server's own points are not opened; the plan says what it takes in their place.

    Raises
    ------
    ConfigError
        Public parameters that do not fit, or an unknown number of features.
    """
    lines = find_protocol(config.protocol).plan_lines(replace(config, server_data=None), clients, d)
    return {line.name: line.text for line in lines if isinstance(line, PlanLine) and line.name}


def unit_sentence(config: RunConfig) -> str | None:
    """Say what one unit of privacy is, and what somebody has who stands behind several."""
    unit = find_protocol(config.protocol).privacy_unit(config)
    if unit is None:
        return None
    delta = "" if config.row.pure else ", and a larger delta"
    return f"{unit}; {_WORDS[unit][1]} has g times the epsilon{delta}"


def size_conditions(config: RunConfig) -> tuple[str, ...]:
    """Say that N was counted, where it was: adding or removing a record would change it, and the noise with it."""
    if config.dataset is None or config.n_total is not None:
        return ()
    return ("that N, which is the number of records of this public data set, is the same for neighbours",)


def promise_lines(config: RunConfig, *, delta: float, n_total: int) -> Iterator[PlanLine]:
    """Say in a plan of a private run what the unit of privacy is, and whether delta is large."""
    yield PlanLine("unit of privacy", unit_sentence(config) or "none")
    note = large_delta(delta, n_total)
    if note is not None:
        yield PlanLine("delta", note)


_LETTERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def _count(count: int, noun: str = "") -> str:
    """Write a number up to ten in letters, with its noun if there is one."""
    if not noun:
        return _LETTERS[count] if count < len(_LETTERS) else f"{count}"
    digits, words = format_count(count, noun).split(" ", 1)
    return f"{_LETTERS[count] if count < len(_LETTERS) else digits} {words}"


def site_words(numbers: Numbers) -> str:
    """Say for people who may fail, and whom the operator of the server may work with.

    Examples
    --------
    >>> site_words(Numbers.settle(5, lying=1))
    'One of five sites may fail in a round. The operator may be curious, or with a roster lie, alone or with one site.'
    """
    M, D, c, t = numbers.clients, numbers.lost, numbers.lying, numbers.known
    may_fail = "No site" if D == 0 else f"{_count(D).capitalize()} of {_count(M)} sites"
    words = f"{may_fail} may fail in a round. The operator may be "
    if c:
        lies = f"curious, or with a roster lie, alone or with {_count(c, 'site')}"
        return words + (f"{lies}." if c == t else f"{lies}; curious with {_count(t, 'site')}.")
    words += f"curious, alone or with {_count(t, 'site')}"
    needed = least_threshold(M, 1, t)
    if needed > M:
        return f"{words}."
    left = M - needed
    then = "no site may fail" if left == 0 else f"{_count(left, 'site')} may"
    return (
        f"{words}; against an operator that lies and has a site with it, choose --colluding 1: then {then}."
        if left < D
        else f"{words}; --colluding 1 protects against an operator that lies and has a site with it, too."
    )
