"""The data of the utility benchmarks: ten real sets, G2, and generated clusters, all scaled to [-1, 1].

Source: FastLloyd, §6.1.3, Table 2, App. B.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import scale
from fastlloyd.data.public.named import FACTS, dataset_bounds, load_named
from fastlloyd.errors import ConfigError
from fastlloyd_papers.utility.cluster_generation import generate_clusters, rising_sizes

REAL = ("iris", "lsun", "s1", "house", "adult", "wine", "breast", "yeast", "mnist", "birch2")
LARGE = ("adult", "birch2", "mnist")
G2_DIMENSIONS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SYNTH_CLUSTERS = (2, 4, 8, 16, 32)
SYNTH_DIMENSIONS = (2, 4, 8, 16, 32, 64, 128, 256, 512)
SYNTH_K_CLUSTERS = (2, 4, 8, 16, 32, 64, 128)
SYNTH_SEEDS = (0, 1, 2)
ABLATION_SIZES = (2, 4, 8, 16)
ABLATION_SEPARATIONS = (0.25, 0.5, 0.75)
FRESH_SIZES = (3, 6, 12, 24)
UNEQUAL_SEPARATIONS = (0.2, 0.5)
UNEQUAL_SEEDS = (0, 1)

_SYNTH_RECORDS = 10_000
_MOST_OUTLIERS = 100
_SEPARATIONS = (0.16, 0.26)
_ABLATION_RECORDS = 2048
_FRESH_RECORDS, _FRESH_SEPARATIONS, _FRESH_SEED = (400, 1500, 6000, 20_000), (0.15, 0.35, 0.6), 1000
_FRESH_OUTLIERS = 0.01
_UNEQUAL_RECORDS, _UNEQUAL_CLUSTERS, _UNEQUAL_RATIO, _UNEQUAL_SEED = 6000, 8, 20.0, 2000
_G2_RECORDS, _G2_MEANS, _G2_DEVIATION, _G2_SEED = 1024, (500, 600), 30, 20060


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One data set.

    Attributes
    ----------
    name : str
        Of a public set; of generated ones, what identifies them.
    kind : {'named', 'g2', 'synth', 'ablation', 'fresh', 'unequal'}
    k, d : int
        Clusters; features (0 for what a file says).
    separation : float
        Of 'ablation', 'fresh' and 'unequal'.
    seed : int
        Of 'synth', 'fresh' and 'unequal'.
    n : int
        Records of 'fresh' and 'unequal'.
    uneven : bool
        Of 'fresh': sizes 1:2:..:k, outliers and skewed features.
    """

    name: str
    kind: str
    k: int
    d: int = 0
    separation: float = 0.0
    seed: int = 0
    n: int = 0
    uneven: bool = False


def real_source(name: str) -> Source:
    """Describe one of the ten real sets."""
    k = FACTS[name].k
    if k is None:
        raise ConfigError(f"no number of clusters is known for {name}")
    return Source(name=name, kind="named", k=k)


def g2_source(d: int) -> Source:
    """Describe G2 with d features: two clusters of 1,024 records, standard deviation 30."""
    return Source(name=f"g2_{d}_30", kind="g2", k=2, d=d)


def synth_source(k: int, d: int, seed: int) -> Source:
    """Describe Synth or Synth-K: 10,000 records, sizes 1:2:..:k, up to 100 outliers, separation 0.16 to 0.26."""
    return Source(name=f"synth k={k} d={d} seed={seed}", kind="synth", k=k, d=d, seed=seed)


def ablation_source(k: int, d: int, separation: float) -> Source:
    """Describe a set of App. B: 2,048 records on average, sizes within 30 % of each other's mean."""
    name = f"ablation k={k} d={d} separation={separation:g}"
    return Source(name=name, kind="ablation", k=k, d=d, separation=separation)


def ablation_sources() -> tuple[Source, ...]:
    """List the 48 sets of App. B."""
    return tuple(
        ablation_source(k, d, separation)
        for k in ABLATION_SIZES
        for d in ABLATION_SIZES
        for separation in ABLATION_SEPARATIONS
    )


def fresh_sources() -> tuple[Source, ...]:
    """List 16 sets that nothing was tuned on: other sizes, separations and seeds than those of App. B and Synth.

    Every second one has sizes 1:2:..:k, outliers (1 %) and skewed features.
    """
    found = []
    for i, k in enumerate(FRESH_SIZES):
        for j, d in enumerate(FRESH_SIZES):
            n, separation = _FRESH_RECORDS[(i + j) % 4], _FRESH_SEPARATIONS[(i + 2 * j) % 3]
            uneven = (i + j // 2) % 2 == 1
            name = f"fresh k={k} d={d} n={n} separation={separation:g}{' uneven' if uneven else ''}"
            seed = _FRESH_SEED + 4 * i + j
            found.append(
                Source(name=name, kind="fresh", k=k, d=d, separation=separation, seed=seed, n=n, uneven=uneven)
            )
    return tuple(found)


def unequal_sources() -> tuple[Source, ...]:
    """List four sets of two features, 6,000 records and eight clusters whose sizes rise evenly from 1 to 20."""
    return tuple(
        Source(
            name=f"unequal separation={separation:g} seed={seed}",
            kind="unequal",
            k=_UNEQUAL_CLUSTERS,
            d=2,
            separation=separation,
            seed=_UNEQUAL_SEED + seed,
            n=_UNEQUAL_RECORDS,
        )
        for separation in UNEQUAL_SEPARATIONS
        for seed in UNEQUAL_SEEDS
    )


def load_points(source: Source, data_dir: str | None) -> NDArray[np.float64]:
    """Load or generate the records, shape (n, d), each feature scaled to [-1, 1] by its smallest and largest value.

    Raises
    ------
    ConfigError
        A file is not there.
    """
    if source.kind == "named":
        return _load_file(source.name, data_dir)
    if source.kind == "g2":
        try:
            return _load_file(source.name, data_dir)
        except ConfigError:
            return _g2(source.d)
    if source.kind == "fresh":
        return _fresh(source)
    if source.kind == "unequal":
        shares = np.linspace(1.0, _UNEQUAL_RATIO, source.k)
        edges = np.rint(source.n * np.cumsum(shares) / shares.sum()).astype(int)
        sizes = tuple(int(size) for size in np.diff(edges, prepend=0))
        return generate_clusters(sizes, source.d, separation=source.separation, seed=source.seed).scaled()
    rng = np.random.default_rng([source.k, source.d, source.seed])
    if source.kind == "synth":
        sizes = rising_sizes(_SYNTH_RECORDS, source.k)
        outliers = int(rng.integers(_MOST_OUTLIERS + 1))
        separation = float(rng.uniform(*_SEPARATIONS))
        made = generate_clusters(sizes, source.d, separation=separation, outliers=outliers, seed=source.seed)
        return made.scaled()
    mean = _ABLATION_RECORDS / source.k
    sizes = tuple(int(size) for size in rng.uniform(0.7 * mean, 1.3 * mean, source.k))
    seed = round(100 * source.separation)
    return generate_clusters(sizes, source.d, separation=source.separation, seed=seed).scaled()


def find_missing(source: Source, data_dir: str | None) -> str:
    """Say why a set is not there, or nothing."""
    if source.kind != "named":
        return ""
    try:
        load_named(source.name, data_dir)
    except ConfigError as error:
        return str(error)
    return ""


def _load_file(name: str, data_dir: str | None) -> NDArray[np.float64]:
    dataset = load_named(name, data_dir)
    return scale(dataset.values, dataset_bounds(dataset, "auto-public"))


def _fresh(source: Source) -> NDArray[np.float64]:
    """Generate a set of `fresh_sources`."""
    n, k = source.n, source.k
    if not source.uneven:
        sizes = tuple(n // k + (j < n % k) for j in range(k))
        return generate_clusters(sizes, source.d, separation=source.separation, seed=source.seed).scaled()
    outliers = round(_FRESH_OUTLIERS * n)
    sizes = rising_sizes(n - outliers, k)
    made = generate_clusters(sizes, source.d, separation=source.separation, outliers=outliers, seed=source.seed)
    skewed = np.exp(made.scaled())
    low, high = skewed.min(axis=0), skewed.max(axis=0)
    scaled: NDArray[np.float64] = 2.0 * (skewed - low) / (high - low) - 1.0
    return scaled


def _g2(d: int) -> NDArray[np.float64]:
    """Generate a G2 set by its recipe: where the published file is not at hand."""
    rng = np.random.default_rng(_G2_SEED + d)
    parts = [np.rint(rng.normal(mean, _G2_DEVIATION, (_G2_RECORDS, d))) for mean in _G2_MEANS]
    points = np.concatenate(parts)
    low, high = points.min(axis=0), points.max(axis=0)
    scaled: NDArray[np.float64] = 2.0 * (points - low) / (high - low) - 1.0
    return scaled
