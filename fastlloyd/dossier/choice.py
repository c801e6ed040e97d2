"""Which protocol and setting fit, why, and what to expect; from public numbers alone.

The rules are those of docs/guide.md, "The protocol"; the noise is that of the plans themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.merging import LEAST, MOST
from fastlloyd.masking.threshold.numbers import MOST_CLIENTS, Numbers
from fastlloyd.party.option import option
from fastlloyd.run.config import RunConfig
from fastlloyd.run.promise import site_words
from fastlloyd.run.run_file import with_values
from fastlloyd.run.session import find_protocol

_FEW_OWNERS = 4
_PRIVATE = "private"
"""feddp's start without data of the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the choice depends on, all of it public: each question with its default; None: the answer is required."""

    split: str | None = option(
        None,
        "what differs between the parties: rows (other people) or columns (of the same)",
        choices=("rows", "columns"),
    )
    parties: int = option(3, "how many parties have records", "", "M", least=1)
    n: int | None = option(None, "largest number of records of all parties together", "", "N", least=3)
    d: int | None = option(None, "number of features, of all parties together", "", "D", least=1)
    k: int | None = option(None, "number of clusters", "", "K", least=1)
    exact: bool = option(False, "must labels be exact, at the price of no differential privacy")
    epsilon: float = option(1.0, "privacy budget of the run", "", "E", least=1e-3, most=100)
    collude: str = option("none", "who might work together against the others", choices=("none", "server+clients"))
    dropouts: bool = option(False, "may a party be lost in the middle of a run")
    server_data: bool = option(False, "has the operator records of the same kind that all may see")
    unit: str = option("record", "what is protected: one record, or all rows of a person", choices=("record", "person"))

    @property
    def colluding(self) -> bool:
        """Whether the server could work together with a party."""
        return self.collude != "none"

    @property
    def person(self) -> bool:
        """Whether all rows of one person at a party are to be protected together."""
        return self.unit == "person"


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
    return _by_rows(answers) if answers.split == "rows" else _by_columns(answers)


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
    masking = find_protocol("feddp" if answers.server_data else "fastlloyd-plus").site_masking(answers.parties)
    opened: dict[str, Any] = {} if masking is None else {"masking": masking}
    may_fail = (site_words(Numbers.settle(answers.parties)) if opened else lost,)
    if answers.server_data:
        why = (
            f"the operator's own records give the start; {shares}, so that the server and one client together cannot "
            "take it off"
        )
        notes = (*people, *may_fail) if opened or answers.dropouts else people
        return Choice(protocol="feddp", ranks=ranks, values=opened, why=why, notes=notes)
    why = "other records with the same columns: the least error measured of the protocols for this"
    values: dict[str, Any] = opened
    notes = ()
    if opened:
        why += (
            "; the clients add the noise, so that the server and one client together, or the server and a published "
            "result, do not remove it"
        )
        notes = may_fail
    elif answers.colluding:
        values = {"masking": "pairwise"}
        why += f"; {shares}, so that the server and one client together cannot take it off"
        notes = (lost,) if answers.dropouts else ()
    elif answers.dropouts and answers.parties > 2:
        values = {"min_clients": answers.parties - 1}
        notes = (f"--min-clients {answers.parties - 1}: a round closes without one slow or lost client",)
    elif answers.dropouts:
        notes = (lost,)
    others = [Choice(protocol="fastlloyd", ranks=ranks, values=dict(values))]
    if answers.person:
        users = {"start": _PRIVATE, "privacy_level": "client", "users": "COLUMN"}
        others.append(Choice(protocol="feddp", ranks=ranks, values={**opened, "feddp": users}))
        notes = (_UNMERGED, *notes)
    elif answers.colluding:
        others.append(Choice(protocol="feddp", ranks=ranks, values={**opened, "feddp": {"start": _PRIVATE}}))
    many = f"above {MOST_CLIENTS} clients: common masks, with aggregators; the operator knows the noise"
    notes = (*people, *notes, *((many,) if answers.parties > MOST_CLIENTS and not answers.colluding else ()))
    notes = (*notes, *_guess(answers.k or 0), _JUDGED)
    return Choice(protocol="fastlloyd-plus", ranks=ranks, values=values, why=why, notes=notes, others=tuple(others))


def _guess(k: int) -> tuple[str, ...]:
    """Describe how the run itself chooses the number of clusters, if it can."""
    most = 2 * k
    known = (
        f"if {k} is a guess: --k auto:{most} lets the run choose k, at the noise of {most} clusters; --k 2..{most} "
        "shows silhouettes too"
    )
    return (known,) if LEAST <= most <= MOST else ()


_JUDGED = (
    "if people will ask how good the clusters are: --quality releases it, with 5 % of the budget; `plan` says how "
    "exactly"
)


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
    if answers.colluding and not two:
        raise ConfigError(
            "--collude server+clients: between more than two owners of columns no protocol protects from a server that "
            "works with the holder of the key; leave --collude out, or join the columns of two, where vertical-he "
            "needs no server"
        )
    if answers.colluding:
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
    from fastlloyd.run.promise import plan_words

    config = _config(option, answers)
    words = plan_words(config, option.ranks - 1, answers.d)
    if "expected" in words:
        return words["expected"]
    return "its plan makes no estimate of the noise on a centre" if _is_private(config) else "no noise"


def _is_private(config: RunConfig) -> bool:
    from fastlloyd.run.session import find_protocol

    return find_protocol(config.protocol).privacy_unit(config) is not None


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


def run_flags(option: Choice, answers: Answers) -> list[str]:
    """Return the flags of a run of a choice, for `plan` and `init`; the number of its parties is not among them."""
    flags = ["--n-total", str(answers.n), "--protocol", option.protocol, "--k", str(answers.k)]
    if _is_private(_config(option, answers)):
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
