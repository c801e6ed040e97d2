"""What all parties of a vertical-he run agree on before they compute anything, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastlloyd.errors import ConfigError, ProcessesError
from fastlloyd.party.option import read_settings
from fastlloyd.privacy.calibration import stated_delta
from fastlloyd.privacy.limits import check_clusters, check_numbers, check_rounds
from fastlloyd.protocols.vertical_he.settings import Settings
from fastlloyd.wire.header import PartyId

DEFAULT_ROUNDS = 10
MOST_PIECES = 32
TWO_PARTY, THRESHOLD = "two-party", "threshold"
LINEAR, PROJECTION, LANDMARKS, PAIRWISE = "linear", "projection", "landmarks", "pairwise"
RENEWED = (PROJECTION, LANDMARKS)
"""The schemes whose columns are encrypted anew in every round."""


@dataclass(frozen=True, kw_only=True)
class AgreedTerms:
    """What the public parameters and the plan share.

    Attributes
    ----------
    parties : int
        All of them; ranks count from 0.
    n_total : int
        Public upper bound on the records that all owners have in common. Delta, noise and everything public follow from
        it. Only the owners learn the number itself, and only the number of blocks depends on it.
    """

    parties: int
    k: int
    n_total: int
    epsilon: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class PublicParameters(AgreedTerms):
    """Public parameters of one run.

    Attributes
    ----------
    delta : float or None
        None: the default, 1 / (100 N).
    rounds : int or None
        None: ten, as in the paper's experiments, or fewer where noise would drown them (`budget.automatic_rounds`).
    """

    delta: float | None
    rounds: int | None
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.parties < 2:
            raise ProcessesError("vertical-he: expected at least 2 parties, got 1", 2)
        check_clusters(self.k, self.n_total, most=256)
        check_numbers(n_total=self.n_total, epsilon=self.epsilon, delta=self.delta)
        check_rounds(self.rounds)
        chosen = self.chosen
        if chosen.mode == TWO_PARTY and self.parties != 2:
            problem = f"vertical-he.mode = two-party: expected 2 parties, got {self.parties}"
            raise ProcessesError(problem, 2, more=" or leave it out")
        if chosen.threshold is not None:
            self._check_threshold(chosen.threshold)
        if chosen.mode == "server-aided" and self.parties < 3:
            raise ProcessesError(f"vertical-he.mode = server-aided: expected at least 3 parties, got {self.parties}", 3)

    def _check_threshold(self, asked: int) -> None:
        if self.mode != THRESHOLD or asked > self.parties:
            raise ConfigError(
                f"vertical-he.threshold = {asked}: expected vertical-he.mode = threshold and at most as many as there "
                f"are parties, got mode {self.mode} and {self.parties} parties"
            )
        if asked != self.parties and self.pieces > MOST_PIECES:
            raise ConfigError(
                f"vertical-he.threshold = {asked} of {self.parties} parties takes {self.pieces} pieces of the key, "
                f"each with its own noise, expected at most {MOST_PIECES}: choose one nearer to 2 or to {self.parties}"
            )

    @property
    def chosen(self) -> Settings:
        """The settings of this protocol."""
        return read_settings(Settings(), "vertical-he", self.settings)

    @property
    def mode(self) -> str:
        """How the parties divide the work: as set, or by their number."""
        mode = self.chosen.mode
        if mode != "auto":
            return mode
        return TWO_PARTY if self.parties == 2 else "server-aided"

    @property
    def owning(self) -> tuple[PartyId, ...]:
        """The parties that hold columns: all but a server that computes for others."""
        first = 1 if self.mode == "server-aided" else 0
        return tuple(PartyId(rank) for rank in range(first, self.parties))

    @property
    def threshold(self) -> int:
        """How many parties it takes to decrypt under the common key; 0 where no key is shared."""
        chosen = self.chosen.threshold
        return (self.parties if chosen is None else chosen) if self.mode == THRESHOLD else 0

    @property
    def pieces(self) -> int:
        """Pieces of the key beside the computing party's share."""
        return count_pieces(self.parties, self.threshold)

    @property
    def keys(self) -> int:
        """The most secrets and errors that add up to the common key's; 1 where one party has the key."""
        return max(self.parties, 1 + self.pieces) if self.mode == THRESHOLD else 1

    @property
    def noises(self) -> int:
        """How many independent noises of the full scale are in every output."""
        return 1 + self.pieces

    @property
    def allowed_delta(self) -> float:
        """Delta as stated, or the default; the paper's experiments take 1 / N."""
        return stated_delta(self.delta, self.n_total)

    @property
    def count_rounds(self) -> int:
        """Rounds as stated, or ten: for estimates."""
        return DEFAULT_ROUNDS if self.rounds is None else self.rounds


def count_pieces(parties: int, threshold: int) -> int:
    """Count the pieces of a shared key beside the computing party's: one for each group; one side's where none is.

    A group is a set of P - t + 1 of the other parties: any t - 1 of them have a member in each, any t - 2 have none in
    at least one.
    """
    return math.comb(parties - 1, parties - threshold + 1) if threshold else 1


def check_names(names: Sequence[Sequence[str]], owners: int) -> None:
    """Check that there is one list of feature names per owner, none empty.

    Raises
    ------
    ConfigError
        An owner has no column.
    """
    if len(names) != owners:
        raise ConfigError(f"expected the columns of {owners} owners, got those of {len(names)}")
    for i, own in enumerate(names):
        if not own:
            raise ConfigError(f"owner {i + 1} of {owners} has no column; give it one or start fewer parties")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """What a scheme computes with.

    Attributes
    ----------
    ring : int
    prime_bits : tuple of int
        From the last level up; of a circuit, the last one is for relinearisation.
    data_bits, weight_bits : int
        log2 of s_d and s_w.
    unit : float
        Integers to one count: s_d s_w.
    wire_bits : int
        Bits of each number of an LWE sample on the wire.
    error, flood : float
        b, and the bound on X in counts; see `math/scales.py`.
    end_bits : int
        Of a circuit: log2 of the scale of the records' weights.
    """

    ring: int
    prime_bits: tuple[int, ...]
    data_bits: int
    weight_bits: int
    unit: float
    wire_bits: int
    error: float
    flood: float
    end_bits: int = 0
