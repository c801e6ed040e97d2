"""CKKS with tenseal (Microsoft SEAL).

The library is used in two ways:

* **Whole numbers in coefficients** (`Context.encode_integers`). A polynomial with integer coefficients is encrypted
  unchanged, at scale 1. The constant coefficient of a plaintext times a ciphertext is then an inner product of
  integers, exact except for the encryption error, whose coefficients are at most `lattice.ERROR_BOUND`. No record is
  rounded together with another, so one record's contribution is known exactly. It needs one prime and no
  relinearisation.
* **Real numbers in slots** (`Context.encode_slots`), for circuits with products and rescaling.

One coefficient holds the sum over all slots or the inner product. `Context.extract` takes that coefficient out as an
LWE sample, so that no Galois keys are needed and no other coefficient is ever sent (`math/lwe.py`).

Data of a peer pass through `load_ciphertext`, `load_public_key` and `load_relin_key`. They are bare numbers
(`residues`); the frame in which SEAL reads them is written here, so no size or header of a peer ever reaches SEAL.

SEAL draws its keys and errors from generators that it seeds from the operating system.

Source: Cheon et al., "Homomorphic encryption for arithmetic of approximate numbers" (2017); Vertical HE, §2.3;
Albrecht et al., "Homomorphic encryption security standard" (2018).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, InternalError
from fastlloyd.protocols.vertical_he.he.lattice import Parameters, Sample, check_integers, slot_order, twist
from fastlloyd.protocols.vertical_he.he.residues import Halves, check_nonzero, check_uniform, pack, unpack
from fastlloyd.protocols.vertical_he.he.seal import Exchange, SealForm, library, unsupported


@lru_cache(maxsize=2)  # SEAL never changes them, so that all contexts of the same parameters share them
def _make(parameters: Parameters) -> tuple[Any, Any, Any]:
    """Return SEAL's context, evaluator and encoder."""
    seal = library()
    chosen = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
    chosen.set_poly_modulus_degree(parameters.degree)
    chosen.set_coeff_modulus(seal.CoeffModulus.Create(parameters.degree, list(parameters.prime_bits)))
    context = seal.SEALContext(chosen, True, seal.SEC_LEVEL_TYPE.TC128)
    level = context.key_context_data().qualifiers().sec_level if context.parameters_set() else None
    if level not in (seal.SEC_LEVEL_TYPE.TC128, seal.SEC_LEVEL_TYPE.TC192, seal.SEC_LEVEL_TYPE.TC256):
        raise ConfigError(
            f"SEAL does not report 128-bit security for ring degree {parameters.degree} and primes of "
            f"{parameters.prime_bits} bits; choose smaller primes or a larger ring degree"
        )
    return context, seal.Evaluator(context), seal.CKKSEncoder(context)


class Context:
    """Everything public: parameters, encoder, evaluator, and the readers of peers' data.

    Raises
    ------
    ConfigError
        tenseal is missing, or SEAL does not report 128-bit security for the parameters.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.seal, self.evaluator, self._encoder = _make(parameters)
        self._exchange = Exchange()
        self._version = self._exchange.version()
        keys = self.seal.key_context_data().parms().coeff_modulus()
        self._key_primes = tuple(int(prime.value()) for prime in keys)
        key_level = tuple(map(int, self.seal.key_parms_id()))
        self._key_form = SealForm(key_level, parameters.degree, len(self._key_primes), self._version)
        self._levels = [tuple(map(int, self.level(limbs))) for limbs in range(1, len(self.primes) + 1)]
        self._slot_places, self._slot_conjugate = slot_order(parameters.degree)

    @property
    def degree(self) -> int:
        """N."""
        return self.parameters.degree

    @property
    def modulus(self) -> int:
        """The last prime: LWE samples are taken modulo it."""
        return int(self.seal.last_context_data().parms().coeff_modulus()[0].value())

    @property
    def primes(self) -> tuple[int, ...]:
        """All primes that carry data, from the last level up."""
        return tuple(int(p.value()) for p in self.seal.first_context_data().parms().coeff_modulus())

    @property
    def key_primes(self) -> tuple[int, ...]:
        """All primes: those that carry data from the last level up, and with more than one that for relinearisation."""
        return self._key_primes

    def cipher(self) -> Any:
        """Return an empty ciphertext for a result."""
        return library().Ciphertext()

    def computed(self, operation: Callable[..., object], *inputs: Any) -> Any:
        """Return the result of an operation of the evaluator, which writes it into a ciphertext."""
        result = self.cipher()
        operation(*inputs, result)
        return result

    def level(self, primes: int) -> Any:
        """Return the level that has this number of primes left."""
        data = self.seal.first_context_data()
        while len(data.parms().coeff_modulus()) > primes:
            data = data.next_context_data()
        return data.parms_id()

    def limbs(self, level: Any) -> int:
        """Return how many primes are left at a level."""
        return len(self.seal.get_context_data(level).parms().coeff_modulus())

    def transform(self, coefficients: NDArray[np.float64]) -> NDArray[np.complex128]:
        """Evaluate integer polynomials, shape (..., N), at the roots that belong to the slots, shape (..., N / 2).

        The roots are w^e, w = exp(i pi / N), e odd. For e = 4 k + 1 the upper half of the coefficients carries a
        factor i, so one complex transform of N / 2 points gives all of them; those with e = 4 k + 3 are conjugates.
        """
        half = self.degree // 2
        folded = coefficients[..., :half] + 1j * coefficients[..., half:]
        folded *= twist(self.degree)
        values = np.fft.ifft(folded, norm="forward")
        slots: NDArray[np.complex128] = values[..., self._slot_places]
        np.conjugate(slots, out=slots, where=self._slot_conjugate)
        return slots

    def encode_integers(self, slots: NDArray[np.complex128]) -> Any:
        """Encode one row of `transform`'s result: the plaintext has exactly the integers as its coefficients.

        The two transforms have a relative error in L2 of at most about 2^-53 * 10 log2 N each: below 2^-43. With
        coefficients of at most 2^30 and N = 2^12 that is 2^-43 * 2^36, far below the 1/2 at which SEAL's rounding
        would go to another integer.
        """
        plain = library().Plaintext()
        self._encoder.encode(slots.tolist(), 1.0, plain)
        return plain

    def encode_slots(self, values: NDArray[np.float64] | float, scale: float, level: Any) -> Any:
        """Encode real numbers, one per slot, or one number for all slots, at a scale and level."""
        plain = library().Plaintext()
        content = float(values) if np.ndim(values) == 0 else np.asarray(values).tolist()
        self._encoder.encode(content, level, scale, plain)
        return plain

    def decode(self, plain: Any) -> NDArray[np.complex128]:
        """Return a plaintext's values in the order of `transform` before slots are sorted, shape (N / 2,)."""
        values = np.array(self._encoder.decode_complex(plain), dtype=np.complex128)
        ordered = np.empty_like(values)
        ordered[self._slot_places] = np.where(self._slot_conjugate, values.conj(), values)
        return ordered

    def numbers(self, cipher: Any) -> NDArray[np.int64]:
        """Return the two polynomials of a ciphertext as stored, int64, shape (2, limbs, N)."""
        form = self._form(cipher.coeff_modulus_size(), scale=cipher.scale, transformed=cipher.is_ntt_form())
        halves = self._read(cipher, form, seeded=False)
        return np.stack((halves.first, np.asarray(halves.second)))

    def assemble(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> Any:
        """Build a ciphertext of the last level from its two polynomials as stored, shape (N,) each."""
        return self._build(self._form(1), Halves(first[None], second[None]))

    def load_ciphertext(self, content: bytes, *, limbs: int = 0, scale: float = 1.0, seeded: bool = True) -> Any:
        """Read a fresh ciphertext of two polynomials that came from a peer.

        Parameters
        ----------
        content : bytes
        limbs : int
            Primes of its level; 0 for all that carry data.
        scale : float
        seeded : bool
            Whether its second half travels as a seed; if not, that half is checked to be spread over all residues.

        Raises
        ------
        ValueError
            It is of other parameters or hides nothing: the sender is at fault.
        """
        primes = self.primes[: limbs or None]
        halves = unpack(content, primes, self.degree, seeded=seeded)
        if not isinstance(halves.second, bytes):
            check_nonzero(halves.second)  # which SEAL would refuse to transform
        cipher = self._build(self._form(len(primes), scale=scale), halves)
        if not seeded:
            check_uniform(self.numbers(self.computed(self.evaluator.transform_from_ntt, cipher))[1], primes)
        return cipher

    def read_public_key(self, content: bytes) -> Halves:
        """Read a peer's public key as bare numbers and a seed; raise ValueError as `load_ciphertext` does."""
        return unpack(content, self._key_primes, self.degree, seeded=True)

    def load_public_key(self, content: bytes) -> Any:
        """Read a peer's public key; raise ValueError as `load_ciphertext` does."""
        key = library().PublicKey()
        self._exchange.load(key, self.seal, self._key_form.write(self.read_public_key(content)))
        return key

    def expand_key(self, content: bytes) -> Halves:
        """Read a peer's public key with its second half expanded; raise ValueError as `load_ciphertext` does."""
        return self._read(self.load_public_key(content), self._key_form, seeded=False)

    def key_residues(self, coefficients: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a polynomial with small integer coefficients, shape (N,), as keys are stored, shape (primes, N)."""
        plain = library().Plaintext()
        slots = self.transform(coefficients.astype(np.float64))
        self._encoder.encode(slots.tolist(), self.seal.key_parms_id(), 1.0, plain)
        try:
            return self._key_form.read_plain(self._exchange.save(plain, self._key_form.plain_bytes))
        except ValueError as error:
            raise unsupported() from error

    def load_relin_key(self, content: bytes, *, seeded: bool = True) -> Any:
        """Read a peer's relinearisation key; raise ValueError as `load_ciphertext` does."""
        key, each = library().RelinKeys(), self.parameters.key_bytes(seeded=seeded)
        expected = self.parameters.digits * each
        if len(content) != expected:
            raise ValueError(f"expected a relinearisation key of {expected} bytes, got {len(content)}")
        starts = range(0, expected, each)
        parts = [
            unpack(content[start : start + each], self._key_primes, self.degree, seeded=seeded) for start in starts
        ]
        self._exchange.load(key, self.seal, self._key_form.write_keys(parts))
        return key

    def save(self, cipher: Any) -> bytes:
        """Return a ciphertext as bare numbers."""
        first, second = self.numbers(cipher)
        return pack(Halves(first, second), self.parameters.prime_bits)

    def save_seeded(self, fresh: Any, *, limbs: int, scale: float = 1.0) -> bytes:
        """Return a symmetric encryption, which SEAL only writes to a file, as bare numbers and a seed."""
        return pack(self._read(fresh, self._form(limbs, scale=scale), seeded=True), self.parameters.prime_bits)

    def save_public_key(self, fresh: Any) -> bytes:
        """Return a public key, a symmetric encryption of zero at the keys' level, as bare numbers and a seed."""
        return pack(self._read(fresh, self._key_form, seeded=True), self.parameters.prime_bits)

    def save_relin_key(self, fresh: Any) -> bytes:
        """Return a relinearisation key, which SEAL only writes to a file, as bare numbers and seeds."""
        digits, form = self.parameters.digits, self._key_form
        try:
            parts = form.read_keys(self._exchange.save(fresh, form.keys_bytes(digits)), digits)
        except ValueError as error:
            raise unsupported() from error
        return b"".join(pack(part, self.parameters.prime_bits) for part in parts)

    def _form(self, limbs: int, *, scale: float = 1.0, transformed: bool = True) -> SealForm:
        return SealForm(
            self._levels[limbs - 1], self.degree, limbs, self._version, scale=scale, transformed=transformed
        )

    def _build(self, form: SealForm, halves: Halves) -> Any:
        cipher = self.cipher()
        self._exchange.load(cipher, self.seal, form.write(halves))
        return cipher

    def _read(self, thing: Any, form: SealForm, *, seeded: bool) -> Halves:
        try:
            return form.read(self._exchange.save(thing, form.body_bytes(seeded=seeded)), seeded=seeded)
        except ValueError as error:
            raise unsupported() from error

    def coefficients(self, cipher: Any) -> NDArray[np.int64]:
        """Return the two polynomials of a ciphertext at the last level, shape (2, N), modulo the prime.

        This uses up the ciphertext: it leaves the transformed domain in place.
        """
        if cipher.size() != 2 or cipher.coeff_modulus_size() != 1:
            raise InternalError("only ciphertexts of two polynomials at the last level can be read")
        self.evaluator.transform_from_ntt_inplace(cipher)
        return self.numbers(cipher)[:, 0]

    def extract(self, ciphers: list[Any]) -> Sample:
        """Return the constant coefficients of ciphertexts at the last level as LWE samples; None counts as zero.

        This uses up the ciphertexts, as `coefficients` does.
        """
        n, q = self.degree, self.modulus
        constants = np.zeros(len(ciphers), dtype=np.int64)
        vectors = np.zeros((len(ciphers), n), dtype=np.int64)
        for row, cipher in enumerate(ciphers):
            if cipher is None:
                continue
            first, second = self.coefficients(cipher)
            constants[row] = first[0]
            vectors[row, 0] = second[0]
            vectors[row, 1:] = (q - second[:0:-1]) % q
        return Sample(constants, vectors)


class KeyHolder:
    """The secret key: made here, never written, never sent."""

    def __init__(self, context: Context) -> None:
        seal = library()
        self._context = context
        self._generator = seal.KeyGenerator(context.seal)
        self._secret = self._generator.secret_key()
        self._encryptor = seal.Encryptor(context.seal, self._secret)

    def __repr__(self) -> str:
        return "KeyHolder()"

    def public_key(self) -> bytes:
        """Return the public key, to re-randomise and to encrypt with; half of it as a seed."""
        level = self._context.seal.key_parms_id()
        return self._context.save_public_key(self._encryptor.encrypt_zero_symmetric(level))

    def relin_key(self) -> bytes:
        """Return the relinearisation key, half of it as a seed."""
        return self._context.save_relin_key(self._generator.create_relin_keys())

    def encrypt(self, plain: Any) -> bytes:
        """Encrypt under the secret key; half of the ciphertext travels as a seed."""
        fresh = self._encryptor.encrypt_symmetric(plain)
        return self._context.save_seeded(fresh, limbs=self._context.limbs(plain.parms_id()), scale=plain.scale)

    def coefficients(self) -> NDArray[np.int64]:
        """Return the coefficients of the secret key, -1, 0 or 1, shape (N,), to open LWE samples with.

        Sees: nobody but the key holder.
        """
        n, plain = self._context.degree, library().Plaintext()
        # The ciphertext (0, 1) opens to the secret key itself.
        decryptor = library().Decryptor(self._context.seal, self._secret)
        zero, one = np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64)
        decryptor.decrypt(self._context.assemble(zero, one), plain)
        folded = np.fft.fft(self._context.decode(plain), norm="forward") / twist(n)
        found = np.rint(np.concatenate((folded.real, folded.imag))).astype(np.int64)
        if np.abs(found).max() > 1:
            raise InternalError("the secret key is not ternary")
        return found


class Refresher:
    """Fresh encryptions of zero under a peer's public key, as LWE samples: they hide how a sum was computed.

    Parameters
    ----------
    context : Context
    public_key : object
        From `Context.load_public_key`.
    """

    def __init__(self, context: Context, public_key: Any) -> None:
        self._context = context
        self._encryptor = library().Encryptor(context.seal, public_key)

    def zeros(self, count: int) -> Sample:
        """Return `count` samples of zero at the last level."""
        context, level = self._context, self._context.level(1)
        ciphers = [context.cipher() for _ in range(count)]
        for cipher in ciphers:
            self._encryptor.encrypt_zero(level, cipher)
        return context.extract(ciphers)

    def encrypt(self, plain: Any) -> bytes:
        """Encrypt under the public key."""
        return self._context.save(self._context.computed(self._encryptor.encrypt, plain))


def encrypt_integers(
    context: Context, encrypter: KeyHolder | Refresher, coefficients: NDArray[np.int64]
) -> list[bytes]:
    """Encrypt polynomials with integer coefficients, shape (m, N), one ciphertext each."""
    check_integers(coefficients)
    slots = context.transform(coefficients.astype(np.float64))
    return [encrypter.encrypt(context.encode_integers(row)) for row in slots]
