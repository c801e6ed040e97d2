"""Which protocol and setting fit, why, and what to expect; from public numbers alone.

The rules are those of docs/guide.md, "The protocol"; the noise is that of the plans themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.merging import LEAST, MOST
from fastlloyd.run.config import RunConfig
from fastlloyd.run.run_file import with_values

_FEW_OWNERS = 4
_PRIVATE = "private"
"""feddp's start without data of the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the choice depends on; all of it public.

    Attributes
    ----------
    n, d, k, parties : int
        Largest number of records of all parties together, features, clusters, parties with records.
    epsilon : float
    rows : bool
        Whether each party has other records with the same columns; else other columns of the same records.
    collude : bool
        Whether the server could work together with a party.
    dropouts : bool
        Whether a party may be lost in the middle of a run.
    exact : bool
        Whether the labels must be those of k-means without noise, at the price of no differential privacy.
    server_data : bool
        Whether the operator has records of the same kind that the parties may see.
    person : bool
        Whether all rows of one person at a party are to be protected together.
    """

    n: int
    d: int
    k: int
    parties: int
    epsilon: float
    rows: bool
    collude: bool
    dropouts: bool
    exact: bool
    server_data: bool
    person: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A protocol with its settings.

    Attributes
    ----------
    protocol : str
    ranks : int
        Processes of a run.
    values : dict
        Keys of a run file besides.
    why : str
    notes : tuple of str
    others : tuple of Choice
        What would fit, too.
    """

    protocol: str
    ranks: int
    values: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    notes: tuple[str, ...] = ()
    others: tuple[Choice, ...] = ()


def choose(answers: Answers) -> Choice:
    """Return the protocol that fits.

    Raises
    ------
    ConfigError
        None does.
    """
    return _by_rows(answers) if answers.rows else _by_columns(answers)


_PEOPLE = (
    'put unit = "COLUMN" into the run file, the column that says whose a row is: each site makes one record of all '
    "rows of a person, and what is protected is that record"
)
_UNMERGED = (
    "feddp below protects all rows of a person without merging them; with few people its error is large (docs/feddp.md)"
)


def _by_rows(answers: Answers) -> Choice:
    ranks = answers.parties + 1
    if answers.exact:
        if answers.parties < 3:
            raise ConfigError(
                f"--parties {answers.parties}: exact labels come from secfc, which needs at least 3: with fewer no "
                "party's share hides a point; find a third one, or leave --exact out"
            )
        why = "exact labels of k-means from coded shares; no noise, so no differential privacy: publish nothing of it"
        return Choice(protocol="secfc", ranks=ranks, why=why)
    if answers.parties < 2:
        raise ConfigError("--parties 1: one party alone needs no protocol, it has all records; expected two or more")
    lost = "a lost client ends the run; with --state-dir it goes on by --resume and spends nothing twice"
    shares = "the server sees the noisy sums, and each client adds a share of the noise"
    people = (_PEOPLE,) if answers.person else ()
    if answers.server_data:
        why = (
            f"the operator's own records give the start; {shares}, so that the server and one client together cannot "
            "take it off"
        )
        notes = (*people, lost) if answers.dropouts else people
        return Choice(protocol="feddp", ranks=ranks, why=why, notes=notes)
    why = "other records with the same columns: the least error measured of the protocols for this"
    values: dict[str, Any] = {}
    notes = ()
    if answers.collude:
        values = {"masking": "pairwise"}
        why += f"; {shares}, so that the server and one client together cannot take it off"
        notes = (lost,) if answers.dropouts else ()
    elif answers.dropouts and answers.parties > 2:
        values = {"min_clients": answers.parties - 1}
        notes = (f"--min-clients {answers.parties - 1}: a round closes without one slow or lost client",)
    elif answers.dropouts:
        notes = (lost,)
    others = [Choice(protocol="fastlloyd", ranks=ranks, values=values)]
    if answers.person:
        users = {"start": _PRIVATE, "privacy_level": "client", "users": "COLUMN"}
        others.append(Choice(protocol="feddp", ranks=ranks, values={"feddp": users}))
        notes = (_UNMERGED, *notes)
    elif answers.collude:
        others.append(Choice(protocol="feddp", ranks=ranks, values={"feddp": {"start": _PRIVATE}}))
    notes = (*people, *notes, *_guess(answers.k))
    return Choice(protocol="fastlloyd-plus", ranks=ranks, values=values, why=why, notes=notes, others=tuple(others))


def _guess(k: int) -> tuple[str, ...]:
    """Describe how the run itself chooses the number of clusters, if it can."""
    most = 2 * k
    if not LEAST <= most <= MOST:
        return ()
    return (f"if {k} is a guess: --k auto:{most} lets the run choose k, at the noise of {most} clusters",)


def _by_columns(answers: Answers) -> Choice:
    if answers.exact or answers.person:
        raise ConfigError(
            "--split columns: no protocol for columns gives exact labels, and all protect one person's row; leave "
            f"{'--exact' if answers.exact else '--unit person'} out"
        )
    if answers.parties < 2:
        raise ConfigError("--parties 1: all columns are at one party, which needs no protocol; expected two or more")
    two = answers.parties == 2
    encrypted = Choice(
        protocol="vertical-he",
        ranks=2 if two else answers.parties + 1,
        why="columns stay encrypted between the parties, and what is opened has noise",
        notes=("there is no resume: what a broken run released is spent",) if answers.dropouts else (),
    )
    sketches = Choice(
        protocol="vertical-dp",
        ranks=answers.parties + 1,
        why="one message each way, any number of parties; towards the server and the public, not between the parties",
    )
    if answers.collude and not two:
        raise ConfigError(
            "--collude server+clients: between more than two owners of columns no protocol protects from a server that "
            "works with the holder of the key; leave --collude out, or join the columns of two, where vertical-he "
            "needs no server"
        )
    if answers.collude:
        return encrypted
    if answers.parties > _FEW_OWNERS:
        return sketches
    # The promise decides, not the noise: which of the two has less depends on the numbers, and both are shown.
    return replace(encrypted, why=f"{encrypted.why}; sketches promise nothing between the parties", others=(sketches,))


def expected(option: Choice, answers: Answers) -> str:
    """Return what the plan of a protocol says to expect.

    Raises
    ------
    ConfigError
        It cannot run with these numbers.
    """
    from fastlloyd.run.promise import plan_words, privacy_unit

    config = _config(option, answers)
    words = plan_words(config, option.ranks - 1, answers.d)
    if "expected" in words:
        return words["expected"]
    return "no noise" if privacy_unit(config) is None else "its plan makes no estimate of the noise on a centre"


def _config(option: Choice, answers: Answers) -> RunConfig:
    """Return the configuration of a run of a choice."""
    numbers = {"k": answers.k, "n_total": answers.n, "epsilon": answers.epsilon}
    return with_values(RunConfig(), {"protocol": option.protocol, **numbers, **option.values})


def expected_or_why(option: Choice, answers: Answers) -> str:
    """Return the expected result of a protocol that was not chosen, or why it cannot run."""
    try:
        return expected(option, answers)
    except ConfigError as error:
        return f"cannot run with these numbers: {error}"


def plan_flags(option: Choice, answers: Answers) -> list[str]:
    """Return the flags by which `plan` shows a choice."""
    return [
        "-n",
        str(option.ranks),
        "--d",
        str(answers.d),
        "--n-total",
        str(answers.n),
        *_common_flags(option, answers),
    ]


def init_flags(option: Choice, answers: Answers) -> list[str]:
    """Return the flags by which `init` writes a choice down."""
    return ["--clients", str(option.ranks - 1), "--n-total", str(answers.n), *_common_flags(option, answers)]


def _common_flags(option: Choice, answers: Answers) -> list[str]:
    from fastlloyd.run.promise import privacy_unit

    flags = ["--protocol", option.protocol, "--k", str(answers.k)]
    if privacy_unit(_config(option, answers)) is not None:
        flags += ["--epsilon", f"{answers.epsilon:g}"]
    for name, value in option.values.items():
        if not isinstance(value, dict):
            flags += [f"--{name.replace('_', '-')}", str(value)]
    return flags + set_flags(option)


def set_flags(option: Choice) -> list[str]:
    """Return the flags of a protocol's own settings."""
    tables = {name: value for name, value in option.values.items() if isinstance(value, dict)}
    return [
        word
        for name, table in tables.items()
        for key, setting in table.items()
        for word in ("--set", f"{name}.{key}={setting}")
    ]
