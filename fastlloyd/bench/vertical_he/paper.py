"""What Vertical HE publishes: seconds and megabytes (Table 3 b), loss and accuracy (Table 4)."""

from __future__ import annotations

from dataclasses import dataclass

SIZES = (1_000, 10_000, 100_000, 1_000_000)
CLUSTERS = (2, 5, 8)
MACHINE = "8 Xeon Platinum 8276, 6 TB"


# Seconds of ten iterations, for each size and, within it, each number of clusters.
SECONDS = {
    "LAN10000": (52.44, 57.38, 61.8, 55.81, 102.0, 124.8, 84.6, 150.6, 350.4, 116.4, 1332.6, 3744.0),
    "LAN1000": (51.88, 57.04, 61.8, 55.76, 102.0, 124.8, 84.6, 151.8, 351.6, 118.8, 1354.2, 3816.0),
    "LAN500": (52.79, 56.82, 61.8, 56.09, 103.8, 124.8, 85.2, 151.8, 353.4, 122.4, 1351.8, 3816.0),
    "regWAN500": (52.73, 56.99, 61.8, 56.61, 102.0, 125.4, 86.4, 154.2, 355.8, 127.8, 1326.6, 3744.0),
    "regWAN250": (53.49, 57.33, 62.4, 56.3, 103.2, 126.0, 88.8, 157.2, 361.2, 145.8, 1393.8, 3924.0),
    "regWAN100": (53.84, 58.36, 63.0, 57.64, 103.8, 126.6, 92.4, 162.0, 360.0, 179.4, 1360.8, 3852.0),
    "crpWAN500": (53.6, 58.14, 63.0, 57.46, 104.4, 126.6, 87.0, 155.4, 364.2, 127.2, 1334.4, 3780.0),
    "ccWAN200": (56.49, 60.0, 65.4, 59.04, 106.2, 129.6, 91.2, 159.0, 358.8, 143.4, 1317.6, 3708.0),
    "ccWAN100": (56.58, 61.2, 66.0, 59.3, 108.0, 132.0, 94.2, 162.6, 363.6, 166.8, 1372.8, 3852.0),
    "ccWAN50": (58.91, 63.0, 69.0, 62.4, 109.8, 135.0, 103.8, 177.6, 383.4, 285.6, 1496.4, 4212.0),
}
MEGABYTES = (17.9, 19.4, 20.0, 17.9, 19.4, 20.0, 61.9, 72.9, 76.6, 466.0, 563.0, 596.0)


@dataclass(frozen=True, slots=True)
class Utility:
    """A line of Table 4: loss (data scaled to [0, 1]) and accuracy of plain k-means, the paper, and vertical DP."""

    parties: int
    plain_loss: float
    plain_accuracy: float | None
    loss: float
    accuracy: float | None
    seconds: float
    dp_loss: float | None
    dp_accuracy: float | None = None


UTILITY = {
    "s1": (Utility(2, 0.00286, 0.9322, 0.00566, 0.9075, 79.2, 0.0243, 0.6225),),
    "synth-10000-8-2": (Utility(2, 0.0107, 0.8155, 0.0112, 0.8667, 125.4, 0.0343, 0.7031),),
    "har": (
        Utility(2, 0.0355, 0.4963, 0.0417, 0.4515, 109.2, 0.0686, 0.3031),
        Utility(5, 0.0355, 0.4963, 0.0413, 0.4516, 111.0, 0.0966, 0.2915),
        Utility(10, 0.0355, 0.4963, 0.0414, 0.4521, 113.4, 0.1558, 0.2283),
    ),
    "taxi": (
        Utility(2, 0.056, None, 0.059, None, 154.2, 0.070),
        Utility(4, 0.056, None, 0.058, None, 154.8, 0.079),
        Utility(8, 0.056, None, 0.060, None, 156.0, 0.122),
    ),
    "bank": (
        Utility(2, 0.165, None, 0.187, None, 109.8, 0.238),
        Utility(4, 0.165, None, 0.183, None, 111.0, 0.250),
        Utility(7, 0.165, None, 0.184, None, 112.8, 0.296),
    ),
    "loan": (
        Utility(2, 0.550, None, 0.556, None, 121.8, 0.738),
        Utility(4, 0.550, None, 0.554, None, 123.0, 0.766),
        Utility(8, 0.550, None, 0.556, None, 124.2, 0.785),
        Utility(16, 0.550, None, 0.557, None, 126.0, None),
    ),
}
CLUSTERS_OF = {"s1": 15, "synth-10000-8-2": 8, "har": 6, "taxi": 5, "bank": 7, "loan": 5}


def published(network: str, n: int, k: int) -> float:
    """Return the paper's seconds for ten iterations."""
    return SECONDS[network][SIZES.index(n) * len(CLUSTERS) + CLUSTERS.index(k)]


def published_megabytes(n: int, k: int) -> float:
    """Return the paper's megabytes for ten iterations."""
    return MEGABYTES[SIZES.index(n) * len(CLUSTERS) + CLUSTERS.index(k)]
