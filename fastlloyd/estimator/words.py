"""The words of a Python caller, for sentences that are written for the command line.

A run says what is wrong or doubtful by the names of flags, files and people of a run between sites. Every sentence of
it that reaches a caller of the estimator, as an error, a warning or an attribute, passes through `in_python`.

Source: docs/estimator.md, "Warnings"; tests/unit/estimator/test_words.py reads all sentences of the package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fastlloyd.errors import BudgetError, ConfigError, DataError, ProcessesError, RangeError
from fastlloyd.report.citation import STUDY

_FRAME = "a DataFrame of the columns that are meant"
_READ = "pandas.read_csv and the DataFrame that it gives"

PARAMETERS: Mapping[str, str] = {"k": "n_clusters", "seed": "random_state", "set": "settings:"}
"""Options of a run that are parameters under another name."""

INPUTS: Mapping[str, str] = {
    "categories": "columns of 0 and 1 in X, with public bounds",
    "client-caps": "the sizes of the arrays",
    "columns": _FRAME,
    "d": "the columns of X",
    "data": "X",
    "dataset": "X",
    "decimal": _READ,
    "delimiter": _READ,
    "encoding": _READ,
    "header": _READ,
    "id": _FRAME,
    "table": "X",
    "query": "X",
    "rename": _FRAME,
    "thousands": _READ,
    "unit": "one row for each person in X",
}
"""What takes the place of an option that says what is read, and how."""

ELSEWHERE = frozenset(
    {
        *("budget-delta", "colluding", "data-dir", "deadline", "delay", "described", "evaluate", "figures", "key"),
        *(
            "known-shares",
            "log-file",
            "log-format",
            "log-level",
            "masking",
            "memory",
            "metrics",
            "min-clients",
            "network",
        ),
        *("new-state", "output", "overwrite", "passphrase-file", "per-unit", "print-result", "quiet", "reconnect"),
        *("resume", "review", "roster", "setup-deadline", "shaping", "split", "state-dir", "threads", *STUDY),
        *("transport", "workers"),
    }
)
"""Options that a fit neither has nor needs: sentences about them do not reach its caller, or have a phrase below."""

PHRASES: tuple[tuple[str, str], ...] = (
    (" and needs new approvals", ""),
    (
        "add a row 'feature,lo,hi' to the bounds file or leave the feature out with --columns",
        "add it to bounds or leave it out of X",
    ),
    (
        "give one pair LO,HI for all, or a file with one row per feature",
        "give one pair (lo, hi) for all, or a mapping from each column to its pair",
    ),
    ("keep one row per feature", "keep one entry per feature"),
    (
        "choose --missing drop (the row) or --missing midpoint (of the bounds)",
        "choose missing='drop' (the row) or missing='midpoint' (of the bounds)",
    ),
    ("remove it or choose a rule with --missing", "remove it or choose a rule with missing="),
    ("name fewer with --columns", "give fewer"),
    ("leave the column out with --columns", "leave the column out of X"),
    ("leave columns out with --columns", "leave columns out of X"),
    ("leave some out (--columns)", "leave some out of X"),
    ("name them with --columns", f"give {_FRAME}"),
    ("name with --columns what is used", f"give {_FRAME}"),
    ("with --columns if they are meant", "in a DataFrame if they are meant"),
    ("--columns names identifiers if they are meant", "a DataFrame takes identifiers if they are meant"),
)
"""Phrases about people, files and flags of a run, as they stand in the package, and what a Python caller reads."""

_FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)(?: FILE)?")


class ParameterError(ConfigError, ValueError):
    """A parameter of the estimator is wrong; a ValueError too, as scikit-learn expects."""


def in_python(text: str) -> str:
    """Return a sentence in the words of a Python caller.

    Examples
    --------
    >>> in_python("try another --seed (another run spends epsilon again and needs new approvals)")
    'try another random_state (another run spends epsilon again)'
    """
    for phrase, said in PHRASES:
        text = text.replace(phrase, said)
    return _FLAG.sub(lambda flag: PARAMETERS.get(flag[1]) or INPUTS.get(flag[1]) or flag[1].replace("-", "_"), text)


def in_own_words_of(quality: Any) -> Any:
    """Return a `Quality` whose sentences are in the words of a Python caller."""
    return replace(
        quality, sentence=in_python(quality.sentence), warnings=tuple(in_python(each) for each in quality.warnings)
    )


@contextmanager
def in_own_words() -> Iterator[None]:
    """Convert errors of a run to the words of a Python caller."""
    try:
        yield
    except (BudgetError, ParameterError):
        raise
    except (ConfigError, DataError, RangeError) as error:
        text = str(error)
        if isinstance(error, ProcessesError):
            text = f"{error.problem}; give fit_federated {error.processes - 1} arrays{error.more}"
        raise ParameterError(in_python(text)) from error
