"""SecFC, Table 2: accuracy on Gaussian mixtures with sigma = 20.

How far the centres lie apart decides these figures, and the paper does not say it. With centres uniform on
[-7.2, 7.2]^100 the best optimum has about the published accuracy for k = 4 and for k = 16. This one number is fitted,
and used for Table 1 as well.

Source: SecFC, §5.1, Table 2.
"""

from __future__ import annotations

from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.secfc.accuracy import run_table
from fastlloyd_papers.secfc.data import HALF_WIDTH, Source
from fastlloyd_papers.secfc.design import Table, columns

MIXTURE_NOTE = (
    f"Centres are uniform on [-{HALF_WIDTH:g}, {HALF_WIDTH:g}]^100. The paper does not say how far its centres lie "
    "apart; this one number was chosen so that the best optimum comes near the published 96.3 (k = 4) and 84.0 "
    "(k = 16) at sigma = 20, and kept for sigma = 1. The true label is the centre nearest to a record, as in the "
    "paper. The published k-FED figures at k' = k are near those of guessing; ours follow its Algorithm 2 (the "
    "clients' centres are grouped once, then every record goes to the nearest result). Where k' is small, the split "
    "itself tells k-FED which records belong together, so it can do better than Lloyd on the pooled records."
)
_FOUR = Source(title="k = 4", k=4, clients=10, records=10_000, d=100, sigma=20.0)
_SIXTEEN = Source(title="k = 16", k=16, clients=16, records=16_384, d=100, sigma=20.0)

TABLE = Table(
    name="secfc-table2",
    title="SecFC, Table 2: Gaussian mixtures, sigma = 20",
    note=(
        f"{MIXTURE_NOTE} At sigma = 20 no record but a seed itself is three times nearer to one seed than to all "
        "others, so the separated groups are single records, and for k = 16 Lloyd often ends in a local optimum."
    ),
    columns=(
        *columns(_FOUR, (1, 2, 4), (96.3, 0.1), (96.3, 0.0), (46.7, 0.0), (86.6, 5.5), (25.6, 0.1)),
        *columns(_SIXTEEN, (2, 4, 16), (84.0, 0.2), (84.0, 0.1), (42.0, 2.2), (41.7, 1.2), (8.4, 0.1)),
    ),
)


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    return run_table(TABLE, options)
