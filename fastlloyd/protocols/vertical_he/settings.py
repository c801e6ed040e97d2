"""The settings of vertical-he, checked.

Source: Vertical HE, §3 and §4; docs/vertical-he-privacy.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastlloyd.party.option import option


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of vertical-he.

    Attributes
    ----------
    computing : int
        Rank; -1 for automatic.
    """

    mode: str = option(
        "auto",
        "'two-party' (-n 2), 'server-aided' (-n 3 or more: rank 0 computes without data), "
        "'threshold' (every party holds columns and a share of the key, nobody the key), or 'auto'",
        choices=("auto", "two-party", "server-aided", "threshold"),
    )
    scheme: str = option(
        "auto",
        "'linear' (one or two features at the key holder), 'projection' (two clusters), 'landmarks' (three or more "
        "features at both owners, three clusters or more), 'pairwise' (any number of both), or 'auto': the cheapest "
        "one, and landmarks before pairwise",
        choices=("auto", "linear", "projection", "landmarks", "pairwise"),
    )
    threshold: int | None = option(
        None,
        "mode = threshold with three parties or more: t, how many parties, rank 0 among them, it takes to open; the "
        "others may be away after the set-up; 'auto': all",
        least=2,
        auto=True,
    )
    noise: str = option(
        "dp",
        "'dp', or 'flooding': as little as protects the key; then the result is not private",
        choices=("dp", "flooding"),
    )
    shrink: bool = option(
        True,
        "weigh noisy centres and counts with what is known by then, and move clusters that are hardly worth having; "
        "false: divide sums by counts, as the paper does",
    )
    degree: int = option(
        62,
        "how finely encrypted columns are resolved, not for the pairwise scheme: one in (degree + 2) / 2 cells, two in "
        "(degree + 2) / 4, three or more by 2 (degree + 2) landmarks (three clusters: by half as many), rounded down "
        "to a power of two (62)",
        least=4,
        most=510,
    )
    computing: int = option(
        -1, "rank that computes on the encrypted data, or 'auto': the cheaper choice", choices=(-1, 0, 1), auto=True
    )
    tolerance: float = option(
        0.0,
        "stop once no coordinate of a centre moves farther than this (scaled to [-1, 1]); the privacy "
        "of all planned rounds is charged all the same; 0: never",
        least=0,
        below=2,
    )
