"""Everything that can go wrong, sorted by who is at fault.

::

    FastLloydError
      ConfigError          a flag or the run file is wrong                exit 2
        ProcessesError     a run needs another number of processes
        BudgetError        the privacy budget would be exceeded           exit 4
      DataError            a party's own records do not fit               exit 2
        FormError          they do, if read with other flags
      RangeError           a value does not fit the ring                  exit 2
      PeerError            a peer misbehaved or vanished                  exit 3
        PeerTimeout        nothing came within the deadline
        PeerGone           the connection ended
        SecurityError      a record, certificate or tag was refused
      Aborted              another party ended the run; its exit code
      Interrupted          this process was told to stop                  exit 3
      InternalError        our own order of messages is broken: a bug     exit 70

The text of a `DataError` may name files, rows and columns: it is printed on its owner's own
standard error and never travels. What travels is the party and a `Reason` from the fixed list below.

Source: docs/protocol.md, "How a run ends".
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from enum import IntEnum
from itertools import islice

EXIT_OK = 0
EXIT_INPUT = 2
EXIT_PEER = 3
EXIT_BUDGET = 4
EXIT_BUG = 70
# Whole runs of characters up to the next space or '@': each character is looked at once, whatever the text.
_RUN = re.compile(r"[^\s@]++@?")
_USER = re.compile(r"://[^/:]*+:")


def printable(text: str, *, lines: bool = False) -> str:
    r"""Write what does not print as escapes: control characters, marks that turn the direction, lone surrogates.

    A password in an address is left out, wherever the address came from.

    Parameters
    ----------
    text : str
    lines : bool
        Keep the ends of lines.

    Examples
    --------
    >>> printable("dose\x1b[2J")
    'dose\\x1b[2J'
    >>> printable("postgresql://ward:hunter2@db/omop")
    'postgresql://ward:***@db/omop'
    """
    if "://" in text and "@" in text:
        text = _RUN.sub(_without_password, text)
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or (lines and each == "\n") else each.encode("unicode_escape").decode()
        for each in text
    )


def _without_password(run: re.Match[str]) -> str:
    """Return a run of characters without the password of an address that ends it."""
    text = run[0]
    user = _USER.search(text) if text.endswith("@") else None
    return text if user is None or user.end() == len(text) - 1 else f"{text[: user.end()]}***@"


_PLURALS = {"party": "parties", "entry": "entries", "person": "people", "process": "processes"}
_SINGULARS = {"are": "is", "were": "was", "have": "has", "carry": "carries"}


_MOST_NAMES = 10
_SHOWN_PATH = 300
_LONGEST_WORD = 64
_MOST_WORDS = 2000
"""Likeness of words is computed in quadratic time: of no longer words, and of no more."""


def name_some(names: Collection[object], most: int = _MOST_NAMES) -> str:
    """Join names for a sentence, the first of very many.

    Examples
    --------
    >>> name_some(["client 1", "client 4"])
    'client 1, client 4'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, islice(names, most))) + more


def format_count(count: int, noun: str, verb: str = "") -> str:
    """Write a number with its noun, and with a verb, given in the plural, that agrees.

    Examples
    --------
    >>> format_count(1, "client")
    '1 client'
    >>> format_count(2000, "party", "have"), format_count(1, "record", "lack")
    ('2,000 parties have', '1 record lacks')
    """
    if count == 1:
        words = [noun, _SINGULARS.get(verb, f"{verb}s")]
    else:
        *before, last = noun.split(" ")
        words = [" ".join([*before, _PLURALS.get(last, f"{last}s")]), verb]
    return f"{count:,} " + " ".join(words if verb else words[:1])


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the known name that a word was probably meant to be, as a remark to put after the word; '' for none.

    Looks at the first names only, and at none that is very long: word and names may be another party's.

    Examples
    --------
    >>> did_you_mean("epsilom", ["delta", "epsilon"])
    " (did you mean 'epsilon'?)"
    """
    from difflib import get_close_matches  # needed only where something is wrong

    if len(word) > _LONGEST_WORD:
        return ""
    # The dashes of two flags would make any two of them similar.
    names = {name.casefold().lstrip("-"): name for name in islice(known, _MOST_WORDS) if len(name) <= _LONGEST_WORD}
    close = get_close_matches(word.casefold().lstrip("-"), names, n=1, cutoff=0.6)
    meant = names[close[0]] if close else word
    return f" (did you mean {meant!r}?)" if meant != word else ""


class Reason(IntEnum):
    """What one party may tell the others about why it ended: a fixed list of public facts."""

    BAD_CONFIG = 1
    BAD_INPUT = 2
    BUDGET = 3
    TIMEOUT = 4
    GONE = 5
    SECURITY = 6
    PROTOCOL = 7
    CONFIG_MISMATCH = 8
    TOO_FEW_CLIENTS = 9
    INTERRUPTED = 10
    INTERNAL = 11
    RESUME = 12
    OUTPUT = 13
    STATE = 14
    EQUIVOCATION = 15
    NOT_APPROVED = 16
    CONTRADICTION = 17
    OTHER_RESULT = 18
    SOURCE = 19
    OTHER_VERSION = 20
    RESULTS_DIFFER = 21

    @property
    def sentence(self) -> str:
        """Say the reason after the name of the party it blames."""
        return _SENTENCES[self]


_SENTENCES: dict[Reason, str] = {
    Reason.BAD_CONFIG: "did not start: wrong configuration",
    Reason.BAD_INPUT: "did not start: bad input (the details stand on its own standard error)",
    Reason.BUDGET: "did not start: its privacy budget would be exceeded",
    Reason.TIMEOUT: "did not answer within the deadline",
    Reason.GONE: "is gone: its process or connection ended",
    Reason.SECURITY: "sent a record or certificate that was refused",
    Reason.PROTOCOL: "sent a message that does not belong here",
    Reason.CONFIG_MISMATCH: "runs with another public configuration (the server's own standard error says what "
    "differs)",
    Reason.TOO_FEW_CLIENTS: "left fewer clients than --min-clients asks for",
    Reason.INTERRUPTED: "was interrupted",
    Reason.INTERNAL: "met an internal error",
    Reason.RESUME: "cannot resume: its stored state does not fit this run",
    Reason.STATE: "cannot keep its ledger or its state (the details stand on its own standard error)",
    Reason.EQUIVOCATION: "sent several parties different values, so no result was written",
    Reason.NOT_APPROVED: "did not start: what was approved is another configuration (its own standard error names each "
    "value that differs)",
    Reason.CONTRADICTION: "got answers of other parties that contradict each other; which of them is at fault is not "
    "known (its own standard error names them)",
    Reason.OTHER_RESULT: "has a different result than other parties, so no result was written (its own standard error "
    "says what to compare)",
    Reason.SOURCE: "did not start: the database of its records does not answer (the details stand on its own standard "
    "error)",
    Reason.OTHER_VERSION: "speaks another version of the messages: install the same fastlloyd at all parties (the "
    "server's own standard error says which version came)",
    Reason.RESULTS_DIFFER: "found that parties have different results, and which of them is right is not known, so no "
    "result was written: compare `fastlloyd --version` and the machines of all",
    Reason.OUTPUT: "could not write its result files (the details stand on its own standard error)",
}


class FastLloydError(Exception):
    """Base of all errors that end a run with a sentence instead of a stack trace."""

    exit_code: int = EXIT_BUG
    reason: Reason = Reason.INTERNAL

    def __init__(self, message: str, *, reason: Reason | None = None) -> None:
        if type(self) is FastLloydError:
            raise TypeError("FastLloydError is abstract: raise one of its subclasses")
        super().__init__(printable(message))
        if reason is not None:
            self.reason = reason


class ConfigError(FastLloydError):
    """A flag, the run file or a public parameter is wrong; the same on every party."""

    exit_code = EXIT_INPUT
    reason = Reason.BAD_CONFIG


def unusable_path(error: OSError) -> ConfigError:
    """Return the error for a file that the system refuses, by its name or rights, where nothing foresaw it."""
    name = printable(str(error.filename))
    shown = name if len(name) <= _SHOWN_PATH else f"{name[:_SHOWN_PATH]}.."
    return ConfigError(f"{shown}: cannot be looked at ({error.strerror}); check path and rights")


class ProcessesError(ConfigError):
    """A run has another number of processes than it needs.

    Parameters
    ----------
    problem : str
        What was expected, and what came.
    processes : int
        How many it needs.
    more : str
        What follows that number.
    serves : bool
        Whether to say that one of them is the server.
    """

    def __init__(self, problem: str, processes: int, *, more: str = " or more", serves: bool = False) -> None:
        self.problem, self.processes, self.more = problem, processes, more
        super().__init__(f"{problem}; start with -n {processes}{more}{' (rank 0 serves)' * serves}")


class BudgetError(ConfigError):
    """The lifetime privacy budget would be exceeded; nothing was released.

    Parameters
    ----------
    asked, spent, would_add, limit : float
        Epsilon that this run asks for, that was spent before, that this run would add in
        composition, and the limit.
    """

    exit_code = EXIT_BUDGET
    reason = Reason.BUDGET

    def __init__(self, *, asked: float, spent: float, would_add: float, limit: float) -> None:
        why = ""
        if math.isinf(spent):
            why = " (something in the ledger carries no noise, or protects a smaller unit than this run does)"
        super().__init__(
            f"the privacy budget would be exceeded: this run asks for epsilon {asked:g}, {spent:g} was spent "
            f"before{why}, it would add {would_add:g}, and the limit is {limit:g}; lower epsilon or raise the budget"
        )
        self.asked = asked
        self.spent = spent
        self.would_add = would_add
        self.limit = limit


class DataError(FastLloydError):
    """A party's own records do not fit; the text stays on that party's standard error."""

    exit_code = EXIT_INPUT
    reason = Reason.BAD_INPUT


class SourceError(FastLloydError):
    """The database of a party's own records does not answer now: nothing is wrong with what was asked."""

    exit_code = EXIT_PEER
    reason = Reason.SOURCE


class FormError(DataError):
    """A party's own table is written otherwise than `--delimiter`, `--decimal` and `--encoding` say."""


class RangeError(FastLloydError):
    """A public bound does not fit the ring or the declared range."""

    exit_code = EXIT_INPUT
    reason = Reason.BAD_CONFIG


class PeerError(FastLloydError):
    """A peer misbehaved.

    Parameters
    ----------
    peer : str
        Name of the peer at fault, as `str(PartyId)` gives it.
    rank : int
        Its rank; this party's own where it is one of several, and nobody knows which: they stand in the message.
    """

    exit_code = EXIT_PEER
    reason = Reason.PROTOCOL

    def __init__(self, message: str, *, rank: int, reason: Reason | None = None) -> None:
        super().__init__(message, reason=reason)
        self.rank = rank


class PeerTimeout(PeerError):
    """Nothing came from the peer within the deadline."""

    reason = Reason.TIMEOUT


class PeerGone(PeerError):
    """The peer's connection or process ended."""

    reason = Reason.GONE


class SecurityError(PeerError):
    """A certificate, record or confirmation tag of the peer was refused."""

    reason = Reason.SECURITY


class Aborted(FastLloydError):
    """Another party ended the run.

    Parameters
    ----------
    rank : int
        Rank of the party at fault.
    reason : Reason
    code : int
        The exit code that all parties agreed on.
    by : int
        Rank of the party that says so. What a client says of another party is no more than its word.
    """

    def __init__(self, *, rank: int, reason: Reason, code: int, by: int = 0) -> None:
        said = "" if by in (0, rank) else f"client {by} ended the run and says that "
        name = "the server" if rank == 0 else f"client {rank}"
        super().__init__(f"{said}{name} {reason.sentence}", reason=reason)
        self.rank = rank
        self.exit_code = code
        self.by = by


class Interrupted(FastLloydError):
    """A signal told this process to stop: from a person, or from a launcher whose other rank died."""

    exit_code = EXIT_PEER
    reason = Reason.INTERRUPTED


class InternalError(FastLloydError):
    """Our own order of messages is broken: a bug in fastlloyd."""
