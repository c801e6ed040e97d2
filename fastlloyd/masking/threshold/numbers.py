"""The numbers of a run with threshold masks: how many clients open a round, may be lost, and may collude.

Source: docs/protocol.md, "Threshold masks: numbers, parts, secrets".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Self

from fastlloyd.errors import ConfigError

MOST_CLIENTS = 200


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers that all parties of a run agree on.

    Attributes
    ----------
    clients : int
        M, from 2 to 200; all take part in the set-up.
    threshold : int
        T, the clients that open a round together: 2 T > M + c and t < T <= M.
    lying : int
        c, the clients that may collude with a server that breaks the rules.
    known : int
        t, the clients whose parts of the noise an observer may know (`--known-shares`): at least c, and at least 1.
    restored : int
        rho, the clients that may be set back behind the same round to an older state without harm, together or one
        after the other: at most T - c - 1.

    Raises
    ------
    ConfigError
        The numbers do not fit each other.
    """

    clients: int
    threshold: int
    lying: int
    known: int
    restored: int

    def __post_init__(self) -> None:
        M, T, c, t, rho = self.clients, self.threshold, self.lying, self.known, self.restored
        if M > MOST_CLIENTS:
            raise ConfigError(
                f"masking = 'threshold': expected at most {MOST_CLIENTS} clients, got {M}; use common masks, with "
                "aggregators"
            )
        if M < 2 or c < 0 or rho < 0:
            raise ConfigError(
                "masking = 'threshold': expected at least 2 clients and no negative number, got "
                f"{M} clients, {c} that may collude with a lying server and {rho} that may be set back; correct them"
            )
        if t < max(1, c):
            raise ConfigError(
                f"--known-shares {t}: expected at least {max(1, c)}: a client knows its own noise, and {c} may collude "
                "with a lying server; raise --known-shares"
            )
        least = least_threshold(M, c, t)
        if least > M:
            raise ConfigError(
                f"masking = 'threshold': {M} clients are too few against a lying server with {c} of them and "
                f"--known-shares {t}: {least} would have to open a round; start more clients or lower these numbers"
            )
        if not least <= T <= M:
            raise ConfigError(
                f"threshold {T}: expected {least} to {M} of {M} clients to open a round, with {c} that may collude "
                f"with a lying server and --known-shares {t}; give a number in this range"
            )
        if rho > T - c - 1:
            raise ConfigError(
                f"{rho} clients set back to an older state: expected at most {T - c - 1} with threshold {T} and {c} "
                "that may collude with a lying server; lower it or raise the threshold"
            )

    @property
    def lost(self) -> int:
        """D, the clients that may be lost in a round, all steps together."""
        return self.clients - self.threshold

    @property
    def statements(self) -> int:
        """Q, the statements that a client which resumes must receive, its own included."""
        return min(self.clients, self.lost + self.lying + self.restored + 1)

    def to_bytes(self) -> bytes:
        """Encode M, T, c, t and rho as u32, for the digest of the group."""
        return struct.pack("<5I", self.clients, self.threshold, self.lying, self.known, self.restored)

    @classmethod
    def settle(
        cls,
        clients: int,
        *,
        lying: int | None = None,
        known: int | None = None,
        threshold: int | None = None,
        restored: int | None = None,
    ) -> Self:
        """Fill in the numbers that nobody gave.

        Parameters
        ----------
        clients : int
            M.
        lying, known, threshold, restored : int or None
            c, t, T and rho. Defaults: c is 0 up to three clients, else 1; t = max(1, c); the least T that is allowed;
            rho is 1, or 0 where T - c - 1 is 0.

        Raises
        ------
        ConfigError
            As for the class.
        """
        c = (0 if clients <= 3 else 1) if lying is None else lying
        t = max(1, c) if known is None else known
        T = least_threshold(clients, c, t) if threshold is None else threshold
        return cls(clients, T, c, t, min(1, max(0, T - c - 1)) if restored is None else restored)


def least_threshold(clients: int, lying: int, known: int) -> int:
    """Return the least T with 2 T > M + c and T > t: two sets of a round cannot both get T honest answers."""
    return max((clients + lying) // 2 + 1, known + 1)
