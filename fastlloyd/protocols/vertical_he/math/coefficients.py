"""Coefficients of the sign polynomials, made by scripts/he_coefficients.py: do not edit.

Source: Lee et al., "Minimax approximation of sign function by composite polynomial" (2021).
"""

from __future__ import annotations

DELTA = 0.04
ERROR = 0.014603222884268519
LARGEST = 1.014604237478516
SLOPE = 40.31061287481652
CHAIN = (
    (
        1.8091089851832192,
        -1.0,
        -3.308434685397616,
        (
            (-0.6469508399654984, 0.1454222206532631),
            (-2.974476838503777, 2.3267239568091806),
            (-5.525921999332295, 7.6980138131263045),
        ),
    ),
    (0.8541166989854295, -1.0, -2.0063196107566403, ((-1.4134283926310887, 1.4040223808336092),)),
)
