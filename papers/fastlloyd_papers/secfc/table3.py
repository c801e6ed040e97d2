"""SecFC, Table 3: accuracy on rotated MNIST digits.

Source: SecFC, §5.2, Table 3.
"""

from __future__ import annotations

from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.secfc.accuracy import run_table
from fastlloyd_papers.secfc.data import Source
from fastlloyd_papers.secfc.design import Table, columns

_TWO = Source(title="digit 2", k=4, clients=10, digit=2)
_THREE = Source(title="digit 3", k=4, clients=10, digit=3)

TABLE = Table(
    name="secfc-table3",
    title="SecFC, Table 3: rotated MNIST",
    note=(
        "All pictures of one digit in the `mnist` set of --data-dir, each turned by 0, 90, 180 and 270 degrees; the "
        "turn is the true label. The paper does not say which of MNIST's pictures it took; with the 10,000 test "
        "pictures digit 2 has 1,032 and digit 3 has 1,010, and the optimum that k-means finds depends on them. Some "
        "seeds end in a local optimum that takes two turns together."
    ),
    columns=(
        *columns(_TWO, (1, 2, 4), (99.5, 0.1), (99.5, 0.1), (50.5, 0.0), (90.3, 10.4), (25.8, 0.1)),
        *columns(_THREE, (1, 2, 4), (98.1, 0.0), (98.1, 0.0), (97.7, 0.0), (98.1, 0.0), (68.2, 9.4)),
    ),
)


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    return run_table(TABLE, options)
