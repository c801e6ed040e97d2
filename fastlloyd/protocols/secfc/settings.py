"""The paper's symbols for SecFC, with the defaults for M clients, and what all parties agree on before they compute.

Source: SecFC, §4.1 (l, t, n >= 2l + 2t - 1), §5 (centre separation), §6 (membership privacy).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastlloyd.errors import ConfigError, ProcessesError
from fastlloyd.party.option import option, read_settings
from fastlloyd.party.plain_plan import RunTerms
from fastlloyd.privacy.limits import check_clusters, check_rounds
from fastlloyd.protocols.secfc.field.prime import MAX_RECORDS
from fastlloyd.wire.decode import Within

MAX_CLUSTERS = 65_535
MIN_CLIENTS = 3
DEFAULT_ITERATIONS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of SecFC.

    Attributes
    ----------
    segments : int or None
        Paper: l. None: (M + 1) // 2 - t.
    threshold : int or None
        Paper: t. None: max(1, (M + 1) // 4).
    start : {'separated', 'random'}
    starts : int
        The one with the least inertia wins.
    membership, reveal_centers : bool
    least_revealed : int
        Clusters of fewer records keep their centre: that of one record is the record.
    extra_answers : int
    fraction_bits : int
        Paper: the scaling factor lambda of App. A is 2^fraction_bits.
    """

    segments: int | None = option(
        None,
        "l, into how many segments a point is cut: more make shares smaller; 'auto' or 1 and more",
        least=1,
        auto=True,
    )
    threshold: int | None = option(
        None, "t, how many colluding clients learn nothing from their shares; 'auto' or 1 and more", least=1, auto=True
    )
    start: str = option(
        "separated",
        "'separated' groups around k-means++ seeds (§5), or 'random' clustering from the public seed",
        choices=("separated", "random"),
    )
    starts: int = option(
        8, "starts, of which the one with the least inertia wins; each costs as much as one alone", least=1, most=1000
    )
    membership: bool = option(False, "hide which client owns a point (§6): true or false")
    reveal_centers: bool = option(
        False, "l + t clients together reveal the final centres to all clients: true or false"
    )
    least_revealed: int = option(
        5, "records that a cluster must have for its centre to be revealed, 1 and more", least=1
    )
    extra_answers: int = option(
        0, "answers to wait for beyond the 2l + 2t - 1 needed: 1 shows a wrong one, 2 name its sender", least=0
    )
    fraction_bits: int = option(16, "bits of the grid that points are rounded to, 8 to 16", least=8, most=16)


def settle_code(settings: Settings, clients: int) -> tuple[int, int]:
    """Return l and t for M clients: as set, or the defaults.

    Raises
    ------
    ConfigError
        Fewer than 3 clients, or fewer than 2l + 2t - 1 + extra_answers.
    """
    if clients < MIN_CLIENTS:
        why = "with fewer no client's share can hide a point"
        problem = f"secfc: expected at least {MIN_CLIENTS} clients, got {clients}: {why}"
        raise ProcessesError(problem, MIN_CLIENTS + 1, serves=True)
    most = (clients + 1 - settings.extra_answers) // 2
    threshold = max(1, (clients + 1) // 4) if settings.threshold is None else settings.threshold
    segments = max(1, most - threshold) if settings.segments is None else settings.segments
    if segments + threshold > most:
        needed = 2 * (segments + threshold) - 1 + settings.extra_answers
        raise ConfigError(
            f"secfc: l = {segments} segments and threshold t = {threshold} need 2l + 2t - 1 + extra_answers = {needed} "
            f"clients, got {clients}; lower --set secfc.segments, secfc.threshold or secfc.extra_answers, or start "
            "more clients"
        )
    return segments, threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicParameters(RunTerms):
    """Public parameters of one run.

    Attributes
    ----------
    clients : int
        Paper: n.
    rounds : int or None
        Limit on Lloyd iterations; None: 300.
    """

    rounds: int | None
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        Within(1, MAX_RECORDS - 1).check("--n-total", self.n_total)
        check_clusters(self.k, self.n_total, most=MAX_CLUSTERS)
        check_rounds(self.rounds)
        settle_code(self.chosen, self.clients)

    @property
    def chosen(self) -> Settings:
        """The settings, read and checked."""
        return read_settings(Settings(), "secfc", self.settings)
