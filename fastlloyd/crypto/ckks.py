"""CKKS by way of tenseal (Microsoft SEAL): the only file that imports it.

Two uses of one library:

* **Whole numbers in coefficients** (`Context.encode_integers`). A polynomial whose coefficients are integers is
  encrypted as it is, at scale 1. The constant coefficient of a plaintext times a ciphertext is then an inner product
  of integers, exact but for the encryption error, whose coefficients are at most `lattice.ERROR_BOUND`. Nothing is
  rounded together with another record, so what one record adds is known exactly. It needs one prime and no
  relinearisation.
* **Real numbers in slots** (`Context.encode_slots`), for circuits with products and rescaling.

The sum over all slots or the inner product stands in one coefficient. `Context.extract` takes that coefficient out as
an LWE sample, so that no Galois keys are needed and no other coefficient is ever sent; see `crypto` users.

What comes from a peer passes through `load_ciphertext`, `load_public_key` and `load_relin_key`: the length and SEAL's
header are checked before SEAL reads anything, and what it read is checked against the parameters.

SEAL draws its keys and errors from generators that it seeds from the operating system.

Source: Cheon et al., "Homomorphic encryption for arithmetic of approximate numbers" (2017); Vertical HE, §2.3;
Albrecht et al., "Homomorphic encryption security standard" (2018).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.lattice import Parameters, Sample, check_integers, slot_order, twist
from fastlloyd.errors import ConfigError, InternalError

_HEADER = struct.Struct("<HBBBBHQ")
_MAGIC = 0xA15E
_ZSTD = 2


@cache
def _seal() -> ModuleType:
    """Import the library at first use."""
    try:
        import tenseal.sealapi as library
    except ImportError as error:
        raise ConfigError(
            "vertical-he needs the package tenseal, which is not installed; install it with "
            "`pip install 'fastlloyd[he]'` (Python 3.11 to 3.13)"
        ) from error
    return library  # type: ignore[no-any-return]


class _Exchange:
    """A file in memory: SEAL reads and writes files only."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("fastlloyd")
        self._path = f"/proc/self/fd/{self._descriptor}"

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # The default argument outlives this module at the end of the interpreter.
        if hasattr(self, "_descriptor"):
            close(self._descriptor)

    def save(self, thing: Any) -> bytes:
        """Serialise an object."""
        os.ftruncate(self._descriptor, 0)
        thing.save(self._path)
        return os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)

    def load(self, thing: Any, context: Any, content: bytes) -> None:
        """Read an object; SEAL checks it against the context."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, content, 0)
        thing.load(context, self._path)


class Context:
    """Everything public: parameters, encoder, evaluator, and what arrives from peers.

    Parameters
    ----------
    parameters : Parameters

    Raises
    ------
    ConfigError
        tenseal is missing, or SEAL does not report 128-bit security for the parameters.
    """

    def __init__(self, parameters: Parameters) -> None:
        seal = _seal()
        self.parameters = parameters
        chosen = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
        chosen.set_poly_modulus_degree(parameters.degree)
        chosen.set_coeff_modulus(seal.CoeffModulus.Create(parameters.degree, list(parameters.prime_bits)))
        self.seal = seal.SEALContext(chosen, True, seal.SEC_LEVEL_TYPE.TC128)
        level = self.seal.key_context_data().qualifiers().sec_level if self.seal.parameters_set() else None
        if level not in (seal.SEC_LEVEL_TYPE.TC128, seal.SEC_LEVEL_TYPE.TC192, seal.SEC_LEVEL_TYPE.TC256):
            raise ConfigError(
                f"SEAL does not report 128-bit security for ring degree {parameters.degree} and primes of "
                f"{parameters.prime_bits} bits; choose smaller primes or a larger ring degree"
            )
        self.evaluator = seal.Evaluator(self.seal)
        self._encoder = seal.CKKSEncoder(self.seal)
        self._exchange = _Exchange()
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

    def cipher(self) -> Any:
        """Make an empty ciphertext to put a result into."""
        return _seal().Ciphertext()

    def level(self, primes: int) -> Any:
        """Name the level that has so many primes left."""
        data = self.seal.first_context_data()
        while len(data.parms().coeff_modulus()) > primes:
            data = data.next_context_data()
        return data.parms_id()

    def transform(self, coefficients: NDArray[np.float64]) -> NDArray[np.complex128]:
        """Evaluate integer polynomials, shape (..., N), at the roots that belong to the slots, shape (..., N / 2).

        Notes
        -----
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

        Notes
        -----
        The two transforms have a relative error in L2 of at most about 2^-53 * 10 log2 N each: below 2^-43. With
        coefficients of at most 2^30 and N = 2^12 that is 2^-43 * 2^36, far below the 1/2 at which SEAL's rounding
        would go to another integer.
        """
        plain = _seal().Plaintext()
        self._encoder.encode(slots.tolist(), 1.0, plain)
        return plain

    def encode_slots(self, values: NDArray[np.float64] | float, scale: float, level: Any) -> Any:
        """Encode real numbers, one per slot, or one number for all slots, at a scale and level."""
        plain = _seal().Plaintext()
        content = float(values) if np.ndim(values) == 0 else np.asarray(values).tolist()
        self._encoder.encode(content, level, scale, plain)
        return plain

    def decode(self, plain: Any) -> NDArray[np.complex128]:
        """Give a plaintext's values in the order of `transform` before slots are sorted, shape (N / 2,)."""
        values = np.array(self._encoder.decode_complex(plain), dtype=np.complex128)
        ordered = np.empty_like(values)
        ordered[self._slot_places] = np.where(self._slot_conjugate, values.conj(), values)
        return ordered

    def numbers(self, thing: Any, count: int) -> NDArray[np.int64]:
        """Read so many numbers of a plaintext or ciphertext as it is stored, modulo the one prime."""
        return np.fromiter(map(thing.dyn_array().at, range(count)), dtype=np.int64, count=count)

    def assemble(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> Any:
        """Build a ciphertext (or public key) of the last level from its two polynomials, as they are stored."""
        n = self.degree
        version = self._exchange.save(_seal().Plaintext())[3:5]
        content = np.concatenate((first, second)).astype("<u8").tobytes()
        inner = _HEADER.pack(_MAGIC, _HEADER.size, *version, 0, 0, _HEADER.size + 8 + len(content))
        inner += struct.pack("<Q", 2 * n) + content
        members = struct.pack("<4Q?QQQdQ", *self.level(1), True, 2, n, 1, 1.0, 1)
        outer = _HEADER.pack(_MAGIC, _HEADER.size, *version, 0, 0, _HEADER.size + len(members) + len(inner))
        cipher = self.cipher()
        try:
            self._exchange.load(cipher, self.seal, outer + members + inner)
        except (RuntimeError, ValueError) as error:
            raise ConfigError("this version of tenseal is not supported: install tenseal 0.3.15 or later") from error
        return cipher

    def load_ciphertext(self, content: bytes, *, level: Any = None, scale: float = 1.0, seeded: bool = True) -> Any:
        """Read a fresh ciphertext of two polynomials that came from a peer; `seeded` halves the length allowed.

        Raises
        ------
        ValueError
            It is damaged, of other parameters, of another scale or level: the sender is at fault.
        """
        seal = _seal()
        cipher = seal.Ciphertext()
        self._load(cipher, content, self.parameters.most_bytes(len(self.primes)) * (1 if seeded else 2))
        wanted = self.seal.first_parms_id() if level is None else level
        if cipher.size() != 2 or not cipher.is_ntt_form() or cipher.parms_id() != wanted or cipher.scale != scale:
            raise ValueError("a ciphertext of another size, level or scale than agreed")
        self._check_hiding(cipher)
        return cipher

    def load_public_key(self, content: bytes) -> Any:
        """Read a peer's public key; raises ValueError as `load_ciphertext` does."""
        key = _seal().PublicKey()
        self._load(key, content, 2 * self.parameters.most_bytes(len(self.parameters.prime_bits)))
        self._check_hiding(key.data())
        return key

    def load_relin_key(self, content: bytes) -> Any:
        """Read a peer's relinearisation key; raises ValueError as `load_ciphertext` does."""
        key = _seal().RelinKeys()
        limbs = len(self.parameters.prime_bits)
        self._load(key, content, limbs * 2 * self.parameters.most_bytes(limbs))
        return key

    def _check_hiding(self, cipher: Any) -> None:
        """Refuse a second polynomial that is zero modulo a prime: it hides nothing, and SEAL refuses to compute on it.

        Notes
        -----
        One that was made by the rules is uniform, so its first number is not zero, but for once in q.
        """
        n, read = self.degree, cipher.dyn_array().at
        for start in range(n * cipher.coeff_modulus_size(), 2 * n * cipher.coeff_modulus_size(), n):
            if not any(read(place) for place in range(start, start + n)):
                raise ValueError("a ciphertext or key without its uniform half, which hides nothing")

    def _load(self, thing: Any, content: bytes, most: int) -> None:
        """Check SEAL's header, read, check."""
        seal = _seal()
        if not _HEADER.size < len(content) <= most:
            raise ValueError(f"expected at most {most} bytes of ciphertext or key, got {len(content)}")
        magic, header, _, _, mode, _, size = _HEADER.unpack_from(content)
        if magic != _MAGIC or header != _HEADER.size or mode != _ZSTD or size != len(content):
            raise ValueError("the header of a ciphertext or key is damaged")
        try:
            self._exchange.load(thing, self.seal, content)
        except (RuntimeError, ValueError, IndexError, MemoryError) as error:
            raise ValueError("a ciphertext or key is damaged or has other parameters") from error
        if not seal.is_valid_for(thing, self.seal):
            raise ValueError("a ciphertext or key does not fit the parameters")

    def save(self, thing: Any) -> bytes:
        """Serialise a ciphertext or public key."""
        return self._exchange.save(thing)

    def coefficients(self, cipher: Any) -> NDArray[np.int64]:
        """Read the two polynomials of a ciphertext at the last level, shape (2, N), modulo the prime.

        The ciphertext is used up: it is brought out of the transformed domain in place.
        """
        if cipher.size() != 2 or cipher.coeff_modulus_size() != 1:
            raise InternalError("only ciphertexts of two polynomials at the last level can be read")
        self.evaluator.transform_from_ntt_inplace(cipher)
        return self.numbers(cipher, 2 * self.degree).reshape(2, self.degree)

    def extract(self, ciphers: list[Any]) -> Sample:
        """Take the constant coefficients out of ciphertexts at the last level, as LWE samples; None counts as zero.

        The ciphertexts are used up: they are brought out of the transformed domain in place.
        """
        n, q = self.degree, self.modulus
        constants = np.zeros(len(ciphers), dtype=np.int64)
        vectors = np.zeros((len(ciphers), n), dtype=np.int64)
        for row, cipher in enumerate(ciphers):
            if cipher is None:
                continue
            if cipher.size() != 2 or cipher.coeff_modulus_size() != 1:
                raise InternalError("only ciphertexts of two polynomials at the last level can be extracted")
            self.evaluator.transform_from_ntt_inplace(cipher)
            read = cipher.dyn_array().at
            constants[row] = read(0)
            second = np.fromiter(map(read, range(n, 2 * n)), dtype=np.int64, count=n)
            vectors[row, 0] = second[0]
            vectors[row, 1:] = (q - second[:0:-1]) % q
        return Sample(constants, vectors)


class KeyHolder:
    """The secret key: made here, never written, never sent.

    Parameters
    ----------
    context : Context
    """

    def __init__(self, context: Context) -> None:
        seal = _seal()
        self._context = context
        self._generator = seal.KeyGenerator(context.seal)
        self._secret = self._generator.secret_key()
        self._encryptor = seal.Encryptor(context.seal, self._secret)

    def __repr__(self) -> str:
        return "KeyHolder()"

    def public_key(self) -> bytes:
        """Give the public key, to re-randomise and to encrypt with."""
        key = _seal().PublicKey()
        self._generator.create_public_key(key)
        return self._context.save(key)

    def relin_key(self) -> bytes:
        """Give the relinearisation key, half of it as a seed."""
        return self._context.save(self._generator.create_relin_keys())

    def encrypt(self, plain: Any) -> bytes:
        """Encrypt under the secret key; half of the ciphertext travels as a seed."""
        return self._context.save(self._encryptor.encrypt_symmetric(plain))

    def coefficients(self) -> NDArray[np.int64]:
        """Give the coefficients of the secret key, -1, 0 or 1, shape (N,), to open LWE samples with.

        Notes
        -----
        Sees: the key holder, and nobody else.
        """
        n, plain = self._context.degree, _seal().Plaintext()
        # The ciphertext (0, 1) opens to the secret key itself.
        decryptor = _seal().Decryptor(self._context.seal, self._secret)
        zero, one = np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64)
        decryptor.decrypt(self._context.assemble(zero, one), plain)
        folded = np.fft.fft(self._context.decode(plain), norm="forward") / twist(n)
        found = np.rint(np.concatenate((folded.real, folded.imag))).astype(np.int64)
        if np.abs(found).max() > 1:
            raise InternalError("the secret key is not ternary")
        return found


class Refresher:
    """Fresh encryptions of zero under a peer's public key, as LWE samples: they hide how a sum was made.

    Parameters
    ----------
    context : Context
    public_key : object
        As `Context.load_public_key` gave it.
    """

    def __init__(self, context: Context, public_key: Any) -> None:
        self._context = context
        self._encryptor = _seal().Encryptor(context.seal, public_key)

    def zeros(self, count: int) -> Sample:
        """Make so many samples of zero at the last level."""
        seal, level = _seal(), self._context.level(1)
        ciphers = []
        for _ in range(count):
            cipher = seal.Ciphertext()
            self._encryptor.encrypt_zero(level, cipher)
            ciphers.append(cipher)
        return self._context.extract(ciphers)

    def encrypt(self, plain: Any) -> bytes:
        """Encrypt under the public key."""
        cipher = _seal().Ciphertext()
        self._encryptor.encrypt(plain, cipher)
        return self._context.save(cipher)


def encrypt_integers(
    context: Context, encrypter: KeyHolder | Refresher, coefficients: NDArray[np.int64]
) -> list[bytes]:
    """Encrypt polynomials with integer coefficients, shape (m, N), one ciphertext each."""
    check_integers(coefficients)
    slots = context.transform(coefficients.astype(np.float64))
    return [encrypter.encrypt(context.encode_integers(row)) for row in slots]
