r"""Random polynomials with a prescribed sum: they hide everything in the coded answers except the requested sums.

The server gets enough answers to decode the whole polynomial phi of a point and a centre, hence its value at each
beta_u, u <= l: one segment's contribution to the score. So client j adds r(alpha_j) to its answer, r a polynomial of
degree D = 2l + 2t - 2 whose values at beta_1..beta_l sum to 0. Such an r is fixed by its values at any D points, if
these do not all vanish for a non-zero r (checked when a `Code` is made). So clients 1..D add one pseudo-random element
for each entry, and each other client the linear combination of these D that completes the polynomial.

To add e to a sum, all clients add the value of one more polynomial of sum e. The constant e / l suffices, since r
already has all the randomness of a polynomial of degree D.

Over a uniform choice of the D values, phi + r is uniform among the polynomials of degree D with the sum of phi, so the
server's view is a function of the sums alone. The values come from a key that only the clients have; a server and any
one client together can remove them.

Source: none in the paper, whose server learns each segment's part; docs/secfc.md, "The arithmetic, byte by byte".
"""

from __future__ import annotations

import struct

import numpy as np

from fastlloyd.protocols.secfc.field.lagrange import Code, completion_matrix
from fastlloyd.protocols.secfc.field.prime import Elements
from fastlloyd.randomness.prg import KeyStream

# A residue of 24 bits times a centred one is below 2^47: 15 of them and one residue stay below 2^51.
_UNREDUCED = 15


def zero_sum_mask(
    code: Code, client: int, shape: tuple[int, ...], *, stream: KeyStream, iteration: int, block: int = 0
) -> Elements:
    """Return one client's mask of its answers.

    Parameters
    ----------
    code : Code
    client : int
        1..n.
    shape : tuple of int
        Shape of the answers.
    stream : KeyStream
        Of a key common to the clients, unknown to the server, for this run and purpose alone (`prg.derive`).
    iteration, block : int
        Together never twice with one key: each mask hides one array of answers.

    Returns
    -------
    float64 array, shape (primes, *shape)
        Integers of at most 2^51 in size: not reduced, since the sum is reduced later.

    Notes
    -----
    Sees: every client can compute it for all clients.
    """
    drawn = code.recovery - 1
    if client <= drawn:
        return code.field.uniform_from(stream, struct.pack("<III", iteration, client, block), shape)
    row = completion_matrix(code)[:, client - drawn - 1]
    total = code.field.zeros(shape)
    for j in range(1, drawn + 1):
        part = code.field.uniform_from(stream, struct.pack("<III", iteration, j, block), shape)
        part *= row[:, j - 1].reshape(-1, *(1,) * len(shape))
        total += part
        if j % _UNREDUCED == 0:
            total = code.field.reduce(total)
    return total


def constant_with_sum(code: Code, sums: Elements) -> Elements:
    """Return the constants that every client adds for a prescribed sum over beta_1..beta_l.

    Parameters
    ----------
    code : Code
    sums : array, shape (primes, *S)
        Field elements.

    Returns
    -------
    float64 array, shape (primes, *S)
        Congruent to sums / l and at most 2^47 in size: not reduced.
    """
    inverses = np.array([float(pow(code.segments, -1, p)) for p in code.field.primes])
    return np.asarray(inverses.reshape(-1, *(1,) * (sums.ndim - 1)) * sums)
