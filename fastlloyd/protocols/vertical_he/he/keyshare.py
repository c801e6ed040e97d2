r"""A key that nobody holds: the secrets s_i of all parties add up to the secret s of a common key.

The first party draws the uniform halves a (as seeds); the collector adds up. Each e is a fresh error, w_j the j-th part
of the gadget (the special prime in place j, zero elsewhere), and u_i is drawn as s_i is:

::

    first           z_1 = -(a s_1 + e), a       for the public key; with a_j for each part of a relinearisation key
    each other i    z_i = -(a s_i + e)          also for each a
    all             g_ij = -u_i a_j + w_j s_i + e
    collector       z = sum of z_i, (z, a) the public key of s; z_j, g_j: the sums of the others
    all             r_ij = s_i g_j + (u_i - s_i) h_j + e + e,      h_j = -z_j
    collector       (sum of r_ij, h_j): part j of the relinearisation key of s

**It is correct.** h_j = a_j s + e_h and g_j = -u a_j + w_j s + e_g, with e_h, e_g and u = sum of u_i the sums over the
parties. So

    sum of r_ij = s g_j + (u - s) h_j + e_r = w_j s^2 - s (a_j s + e_h) + s e_g + u e_h + e_r = w_j s^2 - s h_j + E_j,
    E_j = s e_g + u e_h + e_r,    e_r the sum of two errors of each party.

A coefficient of s or u has variance 2 P / 3 with P parties, one of e_g or e_h 10.5 P: those of E_j have variance
N (2 P / 3) (10.5 P) 2 + 21 P = 14 N P^2 + 21 P (`relin_variance`).

**It hides each share** from all other parties together, if they follow the protocol: party i sends ring-LWE samples
under s_i and u_i with fresh errors (Mouchet et al., Theorem 1; the second round is one sample under both, for uniform
g_j and h_j). Nothing prevents a collector that deviates from returning g_j and h_j of which it knows more.

An LWE sample under the common key is opened in parts: each party adds the inner product with its own share and its own
noise.

SEAL draws the secrets and the errors of the first party's z; the other errors are drawn here from the same
distribution. Products are computed number by number, in SEAL's transformed order (`lattice.multiply_residues`).

Source: Vertical HE, §4.2; Mouchet et al., "Multiparty homomorphic encryption from ring-learning-with-errors" (2021),
Protocols 1 and 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.vertical_he.he.ckks import Context, KeyHolder
from fastlloyd.protocols.vertical_he.he.lattice import ERROR_VARIANCE, multiply_residues
from fastlloyd.protocols.vertical_he.he.residues import check_uniform, pack_half, unpack_half
from fastlloyd.randomness.secret import SecretRandom


def relin_variance(ring: int, parties: int) -> float:
    """Return the variance of a coefficient of E_j; with one party SEAL's own error has at most this one."""
    return ERROR_VARIANCE * (4.0 / 3.0 * ring * parties**2 + 2.0 * parties)


class KeyShare:
    """One party's share of the key: created here, never written, never sent.

    Parameters
    ----------
    context : Context
    secret : SecretRandom
    coefficients : int64 array, shape (N,), optional
        The sum of the pieces that this party contributes, of several or of none; a fresh secret by default.
    """

    def __init__(self, context: Context, secret: SecretRandom, coefficients: NDArray[np.int64] | None = None) -> None:
        self._context = context
        self._secret = secret
        self._own = KeyHolder(context)
        self._share = self._own.coefficients() if coefficients is None else coefficients
        self._key = context.key_residues(self._share)
        self._once = context.key_residues(KeyHolder(context).coefficients())  # u_i
        self._primes = np.array(context.key_primes, dtype=np.int64)[:, None]

    def __repr__(self) -> str:
        return "KeyShare()"

    def coefficients(self) -> NDArray[np.int64]:
        """Return the share, shape (N,), its owner's alone: -1, 0 or 1, or the sums of several pieces' coefficients."""
        return self._share

    def lead(self, count: int) -> tuple[bytes, ...]:
        """Return `count` pairs (z_1, a), half of each as a seed; run by the first party."""
        return tuple(self._own.public_key() for _ in range(count))

    def contribute(self, lead: Sequence[bytes], *, zeros: bool = True) -> tuple[bytes, ...]:
        """Return this party's z for each a, unless it is the first party's own, then g for each a but the first.

        Raises
        ------
        ValueError
            The lead does not fit the parameters, or has a seed twice: its sender is at fault.

        Notes
        -----
        With one a for two parts j and k, g_ij - g_ik = (w_j - w_k) s_i + e - e would show s_i.
        """
        if len({content[self._context.parameters.key_half_bytes :] for content in lead}) < len(lead):
            raise ValueError("expected a new seed for each part of a key, got one twice")
        firsts, gadgets = [], []
        for place, content in enumerate(lead):
            common = np.asarray(self._context.expand_key(content).second)
            if zeros:
                firsts.append(self._pack(-self._times(common, self._key) - self._error()))
            if place:
                gadgets.append(self._pack(self._gadget(common, place - 1)))
        return (*firsts, *gadgets)

    def close(self, zeros: Sequence[bytes], gadgets: Sequence[bytes]) -> tuple[bytes, ...]:
        """Return this party's r for each part of the relinearisation key, from the sums z and g.

        Raises
        ------
        ValueError
            They do not fit the parameters or are not uniform: their sender is at fault.
        """
        found = []
        for zero, gadget in zip(zeros, gadgets, strict=True):
            h, g = -read_part(self._context, zero) % self._primes, read_part(self._context, gadget)
            products = self._times(g, self._key) + self._times(h, (self._once - self._key) % self._primes)
            found.append(self._pack(products % self._primes + self._error(2)))
        return tuple(found)

    def _gadget(self, common: NDArray[np.int64], digit: int) -> NDArray[np.int64]:
        found = (self._error() - self._times(common, self._once)) % self._primes
        prime = self._primes[digit]
        factor = self._primes[-1] % prime  # the special prime
        found[digit] = (found[digit] + multiply_residues(self._key[digit], factor, prime)) % prime
        return found

    def _times(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
        return multiply_residues(first, second, self._primes)

    def _error(self, count: int = 1) -> NDArray[np.int64]:
        """Return the residues of one error, or of the sum of several: they are those of their sum."""
        errors = [draw_error(self._context.degree, self._secret) for _ in range(count)]
        return self._context.key_residues(np.sum(errors, axis=0))

    def _pack(self, residues: NDArray[np.int64]) -> bytes:
        return pack_half(residues % self._primes, self._context.parameters.prime_bits)


def read_part(context: Context, content: bytes) -> NDArray[np.int64]:
    """Read a peer's polynomial, or a sum of such, at the keys' level, shape (primes, N).

    Raises
    ------
    ValueError
        A residue is not below its prime, or they are not spread: the sender is at fault.

    Notes
    -----
    The numbers are in the transformed domain, so this finds zero and constants, but no small polynomials.
    """
    found = unpack_half(content, context.key_primes, context.degree)
    check_uniform(found, context.key_primes)
    return found


def add_parts(context: Context, first: Sequence[bytes], second: Sequence[bytes]) -> tuple[bytes, ...]:
    """Add polynomials one by one; raise ValueError as `read_part` does."""
    primes = np.array(context.key_primes, dtype=np.int64)[:, None]
    sums = [
        (read_part(context, one) + read_part(context, other)) % primes for one, other in zip(first, second, strict=True)
    ]
    return tuple(pack_half(each, context.parameters.prime_bits) for each in sums)


def join_relin_key(context: Context, closed: Sequence[bytes], zeros: Sequence[bytes]) -> bytes:
    """Return the relinearisation key, both halves expanded, from the sums of all r and the sums z."""
    primes = np.array(context.key_primes, dtype=np.int64)[:, None]
    halves = [
        part + pack_half(-read_part(context, zero) % primes, context.parameters.prime_bits)
        for part, zero in zip(closed, zeros, strict=True)
    ]
    return b"".join(halves)


def draw_error(count: int, secret: SecretRandom) -> NDArray[np.int64]:
    """Draw errors, each the difference of two sums of 21 bits, int64, shape (count,)."""
    bits = np.unpackbits(np.frombuffer(secret.bytes(6 * count), dtype=np.uint8)).reshape(count, 48).astype(np.int64)
    found: NDArray[np.int64] = bits[:, :21].sum(axis=1) - bits[:, 21:42].sum(axis=1)
    return found
