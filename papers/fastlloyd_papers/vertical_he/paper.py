"""What Vertical HE publishes: seconds and megabytes (Table 3), loss, accuracy and seconds (Table 4)."""

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
# Ten iterations of Mohassel, Rosulek and Trieu (2020), online phase, as this paper prints them: some are estimates.
_MPC_TIMES = {
    "LAN10000": "15.94s 56.00s 1.60m 2.96m 9.91m 16.95m 29.91m 1.66h 2.84h 4.99h 16.62h 1.18d",
    "LAN1000": "18.31s 1.13m 1.94m 3.47m 11.67m 21.14m 35.10m 1.95h 3.55h 5.86h 19.52h 1.48d",
    "LAN500": "27.53s 1.66m 2.85m 4.69m 16.94m 28.33m 46.98m 2.83h 4.72h 7.83h 1.18d 1.97d",
    "regWAN500": "2.05m 8.04m 14.05m 20.40m 1.32h 2.31h 3.40h 13.20h 23.10h 1.42d 5.50d 9.63d",
    "regWAN250": "2.89m 11.35m 19.87m 29.03m 1.88h 3.30h 4.84h 18.84h 1.37d 2.02d 7.85d 13.74d",
    "regWAN100": "3.76m 14.85m 25.70m 37.49m 2.45h 4.29h 6.25h 1.02d 1.79d 2.60d 10.21d 17.89d",
    "crpWAN500": "8.79m 34.77m 1.02h 1.46h 5.79h 10.13h 14.54h 2.41d 4.22d 6.06d 24.11d 42.17d",
    "ccWAN200": "17.32m 1.14h 2.00h 2.86h 11.40h 19.93h 1.19d 4.75d 8.30d 11.89d 47.50d 82.98d",
    "ccWAN100": "20.70m 1.37h 2.40h 3.43h 13.67h 23.90h 1.43d 5.69d 9.95d 14.28d 56.94d 99.53d",
    "ccWAN50": "25.87m 1.73h 3.02h 4.29h 17.11h 1.25d 1.79d 7.12d 12.49d 17.88d 71.19d 124.9d",
}
_MPC_SIZES = "230MB 910MB 1.59GB 2.25GB 9.00GB 15.7GB 22.4GB 89.9GB 157GB 224GB 899GB 1.57TB"
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "MB": 1.0, "GB": 1e3, "TB": 1e6}


@dataclass(frozen=True, slots=True)
class Utility:
    """A line of Table 4: loss (data in [0, 1]), accuracy and seconds of plain k-means, the paper and vertical DP."""

    parties: int
    plain_loss: float
    plain_accuracy: float | None
    loss: float
    accuracy: float | None
    seconds: float
    dp_loss: float | None
    dp_accuracy: float | None
    dp_seconds: float | None


UTILITY = {
    "s1": (Utility(2, 0.00286, 0.9322, 0.00566, 0.9075, 79.2, 0.0243, 0.6225, 15.0),),
    "synth-10000-8-2": (Utility(2, 0.0107, 0.8155, 0.0112, 0.8667, 125.4, 0.0343, 0.7031, 18.91),),
    "har": (
        Utility(2, 0.0355, 0.4963, 0.0417, 0.4515, 109.2, 0.0686, 0.3031, 13.59),
        Utility(5, 0.0355, 0.4963, 0.0413, 0.4516, 111.0, 0.0966, 0.2915, 38.87),
        Utility(10, 0.0355, 0.4963, 0.0414, 0.4521, 113.4, 0.1558, 0.2283, 475.8),
    ),
    "taxi": (
        Utility(2, 0.056, None, 0.059, None, 154.2, 0.070, None, 78.6),
        Utility(4, 0.056, None, 0.058, None, 154.8, 0.079, None, 155.4),
        Utility(8, 0.056, None, 0.060, None, 156.0, 0.122, None, 2376.6),
    ),
    "bank": (
        Utility(2, 0.165, None, 0.187, None, 109.8, 0.238, None, 24.8),
        Utility(4, 0.165, None, 0.183, None, 111.0, 0.250, None, 64.8),
        Utility(7, 0.165, None, 0.184, None, 112.8, 0.296, None, 142.8),
    ),
    "loan": (
        Utility(2, 0.550, None, 0.556, None, 121.8, 0.738, None, 52.43),
        Utility(4, 0.550, None, 0.554, None, 123.0, 0.766, None, 114.6),
        Utility(8, 0.550, None, 0.556, None, 124.2, 0.785, None, 423.6),
        Utility(16, 0.550, None, 0.557, None, 126.0, None, None, None),
    ),
}
CLUSTERS_OF = {"s1": 15, "synth-10000-8-2": 8, "har": 6, "taxi": 5, "bank": 7, "loan": 5}


def published(network: str, n: int, k: int) -> float:
    """Return the paper's seconds for ten iterations."""
    return SECONDS[network][_place(n, k)]


def published_megabytes(n: int, k: int) -> float:
    """Return the paper's megabytes for ten iterations."""
    return MEGABYTES[_place(n, k)]


def mpc(network: str, n: int, k: int) -> float:
    """Return the seconds for ten iterations that the paper states of Mohassel, Rosulek and Trieu."""
    return _value(_MPC_TIMES[network], n, k)


def mpc_megabytes(n: int, k: int) -> float:
    """Return the megabytes for ten iterations that the paper states of the same."""
    return _value(_MPC_SIZES, n, k)


def _value(row: str, n: int, k: int) -> float:
    figure = row.split()[_place(n, k)]
    unit = figure.lstrip("0123456789.")
    return float(figure.removesuffix(unit)) * _UNITS[unit]


def _place(n: int, k: int) -> int:
    return SIZES.index(n) * len(CLUSTERS) + CLUSTERS.index(k)
