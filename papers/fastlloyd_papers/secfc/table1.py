"""SecFC, Table 1: accuracy on Gaussian mixtures with sigma = 1.

Source: SecFC, §5.1, Table 1.
"""

from __future__ import annotations

from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.secfc.accuracy import run_table
from fastlloyd_papers.secfc.data import Source
from fastlloyd_papers.secfc.design import Table, columns
from fastlloyd_papers.secfc.table2 import MIXTURE_NOTE

_FOUR = Source(title="k = 4", k=4, clients=10, records=10_000, d=100, sigma=1.0)
_SIXTEEN = Source(title="k = 16", k=16, clients=16, records=16_384, d=100, sigma=1.0)

TABLE = Table(
    name="secfc-table1",
    title="SecFC, Table 1: Gaussian mixtures, sigma = 1",
    note=f"{MIXTURE_NOTE} At sigma = 1 accuracy below 100 % means that two seeds of each start fell into one cluster.",
    columns=(
        *columns(_FOUR, (1, 2, 4), (100.0, 0.0), (100.0, 0.0), (75.0, 0.1), (99.7, 2.1), (25.8, 0.6)),
        *columns(_SIXTEEN, (2, 4, 16), (88.2, 5.5), (86.0, 1.5), (80.3, 5.3), (78.7, 3.7), (7.6, 0.1)),
    ),
)


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    return run_table(TABLE, options)
