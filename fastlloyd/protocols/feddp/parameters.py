"""What all parties of a FedDP-KMeans run must agree on before anything is computed, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastlloyd.errors import ConfigError, ProcessesError
from fastlloyd.party.plain_plan import RunTerms
from fastlloyd.privacy.limits import check_clusters, check_numbers, check_rounds
from fastlloyd.privacy.shares import spread
from fastlloyd.protocols.feddp.settings import settings_from


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreedTerms(RunTerms):
    """What the public parameters and the plan have in common.

    Attributes
    ----------
    clients : int
        m, the parties that hold records; at client level each may hold many users.
    k : int
        Number of clusters; with `choose_k` the largest number, k' of App. H.3.
    choose_k : bool
        Let the server choose k by the elbow of the weighted server data.
    known_shares : int
        t: of how many clients an observer may know the shares of noise, its own counted.
    """

    choose_k: bool
    epsilon: float
    ring_bits: int
    known_shares: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicParameters(AgreedTerms):
    """Public parameters of one run.

    Attributes
    ----------
    min_clients : int or None
        All of them: pairwise masks cancel only in the sum over all clients.
    delta : float or None
        None: the default, 1 / (100 N).
    rounds : int or None
        Paper: T, Lloyd steps after the start; None: see `settings.default_rounds`.

    Raises
    ------
    ConfigError
        A parameter is out of range.
    """

    min_clients: int | None = None
    delta: float | None = None
    rounds: int | None = None
    masking: str = "pairwise"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_clients(self)
        check_clusters(self.k, self.n_total)
        check_numbers(n_total=self.n_total, epsilon=self.epsilon, delta=self.delta)
        settings = settings_from(self.settings)
        check_rounds(self.rounds, least=0 if settings.has_start else 1, what=" of Lloyd steps")
        if self.choose_k and settings.start != "feddp":
            raise ConfigError(
                f"--k auto: the elbow is read off the server's own points and steps 1 and 2, and the start "
                f"{settings.start!r} does without them; give --k"
            )

    @property
    def spread(self) -> float:
        """Standard deviation of all noise over that of the noise that counts: sqrt(m / (m - t))."""
        return spread(self.clients, self.known_shares)


def _check_clients(public: PublicParameters) -> None:
    """Refuse what pairwise masks and noise in shares cannot do, with the mend."""
    if public.clients < 2:
        raise ProcessesError(f"feddp: expected at least 2 clients, got {public.clients}", 3)
    if public.masking != "pairwise":
        raise ConfigError(
            f"--masking: feddp expects 'pairwise', since its server works on the noisy sums, got {public.masking!r}"
        )
    if public.min_clients not in (None, public.clients):
        raise ConfigError(
            f"--min-clients {public.min_clients} does not go with feddp: its masks cancel only in the sum of all "
            f"{public.clients} clients; leave --min-clients out (a run that lost a client ends, and goes on with "
            "--state-dir and --resume)"
        )
    spread(public.clients, public.known_shares)
