"""A key that nobody holds: two parties' secrets add up to the secret of a common public key.

::

    first                                      second
      b_1 = -(a s_1 + e_1), a      ------->
                                              b_2 = -(a s_2 + e_2) for the same a
                                   <-------   (b_1 + b_2, a), the public key of s_1 + s_2

Neither learns the other's share: b_1 and b_2 look random to whoever does not know s_1 or s_2. An LWE sample under the
common key is opened in two steps, each party adding the inner product with its own share and its own noise.

Products are SEAL's; only the small error e_2 is drawn here, from the same distribution as SEAL's.

Source: Vertical HE, §4.2; Mouchet et al., "Multiparty homomorphic encryption from ring-learning-with-errors" (2021),
Protocol 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.he.ckks import Context, KeyHolder
from fastlloyd.crypto.he.residues import Halves, pack
from fastlloyd.randomness.secret import SecretRandom


class KeyShare:
    """The second party's share.

    Parameters
    ----------
    context : Context
        With a single prime.
    secret : SecretRandom
    """

    def __init__(self, context: Context, secret: SecretRandom) -> None:
        self._context = context
        self._secret = secret
        self._own = KeyHolder(context)

    def __repr__(self) -> str:
        return "KeyShare()"

    def join(self, public_key: bytes) -> bytes:
        """Make the common public key from the first party's.

        Raises
        ------
        ValueError
            The first party's key does not fit the parameters: the sender is at fault.
        """
        context, q = self._context, self._context.modulus
        theirs = context.read_public_key(public_key)
        # A public key is an encryption of zero, and a its second half.
        common = context.numbers(context.load_ciphertext(public_key))[1, 0]
        product = context.cipher()
        context.evaluator.multiply_plain(
            context.assemble(common, common), self._encode(self._own.coefficients()), product
        )
        error = draw_error(context.degree, self._secret)
        context.evaluator.add_plain_inplace(product, self._encode(error))
        joined = (theirs.first - context.numbers(product)[0]) % q
        return pack(Halves(joined, theirs.second), context.parameters.prime_bits)

    def coefficients(self) -> NDArray[np.int64]:
        """Return the share's coefficients, -1, 0 or 1, shape (N,); its owner's alone."""
        return self._own.coefficients()

    def _encode(self, coefficients: NDArray[np.int64]) -> object:
        return self._context.encode_integers(self._context.transform(coefficients.astype(np.float64)))


def draw_error(count: int, secret: SecretRandom) -> NDArray[np.int64]:
    """Draw errors, each the difference of two sums of 21 bits, int64, shape (count,)."""
    bits = np.unpackbits(np.frombuffer(secret.bytes(6 * count), dtype=np.uint8)).reshape(count, 48).astype(np.int64)
    found: NDArray[np.int64] = bits[:, :21].sum(axis=1) - bits[:, 21:42].sum(axis=1)
    return found
