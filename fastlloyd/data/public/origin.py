"""Where the public data sets come from, and how each is made of its files.

Every file is named by an address that holds a commit, with its size and SHA-256; what is made of the files is
compared with a SHA-256 of names, values and labels. The sets are not part of this package: their owners' terms hold.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_RAW = "https://raw.githubusercontent.com"
_AUTHORS = f"{_RAW}/D-Diaa/privateclustering/2fffc839c5b2fb4d2ee5f83089891ca23cbc8caa/data"
_BENCHMARKS = f"{_RAW}/gagolews/clustering-data-v1/27ac73a6fd331fb18181419838d2e753dd1b5f80"
_UCI_COPY = f"{_RAW}/jbrownlee/Datasets/d20fcb6402ae34e653d4513b00f39257bb37ed7f"
_MNIST = f"{_RAW}/kelas/mnist/283b387221ab46655e600cfcc25d843bb14292b9"
_LETTER = f"{_RAW}/davidgasquez/letter-recognition/fe3c4830d0003e53340bbf40a57c3573e021df64"

Made = tuple[NDArray[np.float64], NDArray[np.int64] | None]


@dataclass(frozen=True, slots=True)
class Remote:
    """One file elsewhere: address, length in bytes, SHA-256."""

    url: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """How a set is made.

    Attributes
    ----------
    files : tuple of Remote
    names : tuple of str, length d
    build : callable
        From the files' contents, in order, to values, shape (n, d), and labels, shape (n,), or None.
    sha256 : str
        Of what is built: see `content_digest`.
    """

    files: tuple[Remote, ...]
    names: tuple[str, ...]
    build: Callable[[Sequence[bytes]], Made]
    sha256: str


def content_digest(names: Sequence[str], values: NDArray[np.float64], labels: NDArray[np.int64] | None) -> str:
    """Give the SHA-256 of a set's content, whatever its text looks like.

    It is taken over a line of JSON (names, numbers of rows and of labels), the values as little-endian float64 row by
    row, and the labels as little-endian int64.
    """
    head = json.dumps([list(names), len(values), None if labels is None else len(labels)])
    digest = hashlib.sha256(head.encode("utf-8") + b"\n")
    digest.update(np.ascontiguousarray(values, dtype="<f8").tobytes())
    if labels is not None:
        digest.update(np.ascontiguousarray(labels, dtype="<i8").tobytes())
    return digest.hexdigest()


def _cells(data: bytes, separator: str | None = None) -> list[list[str]]:
    """Split a text into rows of cells; lines without any are left out."""
    lines = data.decode("ascii").splitlines()
    return [[cell.strip() for cell in line.split(separator)] for line in lines if line.strip()]


def _numbers(rows: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    return np.array([[float(cell) for cell in row] for row in rows])


def _classes(data: bytes) -> NDArray[np.int64]:
    """Read classes numbered from 1, one per line, compressed; 0 here is the first."""
    return np.array([int(word) - 1 for word in gzip.decompress(data).split()], dtype=np.int64)


def _plain(files: Sequence[bytes]) -> Made:
    """Read a table of numbers, with classes if there is a second file."""
    return _numbers(_cells(files[0])), _classes(files[1]) if len(files) > 1 else None


def _packed(files: Sequence[bytes]) -> Made:
    """Read a compressed table of numbers, with classes."""
    return _plain([gzip.decompress(files[0]), files[1]])


def _adult(files: Sequence[bytes]) -> Made:
    """Take the six numbers of the training and then the test rows; class 1 is an income above 50K."""
    rows = [row for data in files for row in _cells(data, ",")]
    labels = np.array([row[-1].startswith(">50K") for row in rows], dtype=np.int64)
    return _numbers([[row[column] for column in (0, 2, 4, 10, 11, 12)] for row in rows]), labels


def _breast(files: Sequence[bytes]) -> Made:
    """Leave out the identifier, fill missing values with 1 (the median of those present); class 1 is malignant."""
    rows = _cells(files[0], ",")
    labels = np.array([row[-1] == "4" for row in rows], dtype=np.int64)
    return _numbers([["1" if cell == "?" else cell for cell in row[1:-1]] for row in rows]), labels


def _birch2(files: Sequence[bytes]) -> Made:
    """Read the subset of 25,000 records; its classes are those of the same places in the whole set."""
    whole = _cells(gzip.decompress(files[1]))
    classes = dict(zip(map(tuple, whole), _classes(files[2]).tolist(), strict=True))
    rows = _cells(files[0])
    return _numbers(rows), np.array([classes[tuple(row)] for row in rows], dtype=np.int64)


def _mnist(files: Sequence[bytes]) -> Made:
    """Read images and classes in MNIST's own format: a head of 16 and of 8 bytes, then one byte each."""
    images, classes = (gzip.decompress(data) for data in files)
    pixels = np.frombuffer(images, dtype=np.uint8, offset=16).reshape(-1, 28 * 28)
    return pixels.astype(np.float64), np.frombuffer(classes, dtype=np.uint8, offset=8).astype(np.int64)


def _letter(files: Sequence[bytes]) -> Made:
    """Leave out the line of names and read the class, a letter, from the first cell."""
    rows = _cells(files[0].replace(b'"', b""), ",")[1:]
    return _numbers([row[1:] for row in rows]), np.array([ord(row[0]) - ord("A") for row in rows], dtype=np.int64)


ORIGINS: dict[str, Origin] = {
    "lsun": Origin(
        files=(
            Remote(f"{_AUTHORS}/lsun.txt", 7_488, "b26e46019547f7342bb833bfbe29fa9b5a3e99c21a586dda701dbc1b713b162b"),
            Remote(
                f"{_BENCHMARKS}/fcps/lsun.labels0.gz",
                57,
                "dfede92a51d8829f276a68847fc9f0e7027e9a561f68162b887e1d714931050a",
            ),
        ),
        names=("x", "y"),
        build=_plain,
        sha256="ed09d57250c32d6b2197026293e91f7887788b0ec1f4c827350371ad716aec24",
    ),
    "s1": Origin(
        files=(
            Remote(f"{_AUTHORS}/s1.txt", 104_999, "07e4fb6008159b06285165b330b40d112367a0de240898e8d45d17c2d2df02a6"),
            Remote(
                f"{_BENCHMARKS}/sipu/s1.labels0.gz",
                83,
                "b583261e516f8178987455be18a07891e7995f25e1cae138c0b8b2d0b66e43dd",
            ),
        ),
        names=("x", "y"),
        build=_plain,
        sha256="9ad45cc92021dd1609d8ad2821ac1767f84aab99d07d8b4a505a4a12b77ad6ec",
    ),
    "house": Origin(
        files=(
            Remote(f"{_AUTHORS}/house.txt", 22_124, "4fe2d6a1e2ed597e4fc88cf5f5764ee287916d4094a5e1ec5bccc7e155dbcec1"),
        ),
        names=("r", "g", "b"),
        build=_plain,
        sha256="84711fe96fb6d2ffdb96e1e9d7bef9dc21211cf5fdb0b61bbf467c8965890000",
    ),
    "adult": Origin(
        files=(
            Remote(
                f"{_UCI_COPY}/adult-train.csv",
                3_974_305,
                "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            ),
            Remote(
                f"{_UCI_COPY}/adult-test.csv",
                2_003_132,
                "72567b94f5c1a6f8501377dd80f93892c3848ff071cf91ba47e00b0785a28074",
            ),
        ),
        names=("age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week"),
        build=_adult,
        sha256="07edfa7014db098ccbe185bf0a658ed8f3b70efb0965a985ec4d87923bdcbb7c",
    ),
    "wine": Origin(
        files=(
            Remote(
                f"{_BENCHMARKS}/uci/wine.data.gz",
                4_088,
                "2a70ae86d6460d977e46cced71c9b40c60bba6b1fcc0afb372b8dbfa9f67a68d",
            ),
            Remote(
                f"{_BENCHMARKS}/uci/wine.labels0.gz",
                44,
                "938ab351ff32ff95fdd6bcea7ec91a3589efd9c39804ce74eb02656d778d2ce0",
            ),
        ),
        names=(
            "alcohol",
            "malic_acid",
            "ash",
            "alcalinity_of_ash",
            "magnesium",
            "total_phenols",
            "flavanoids",
            "nonflavanoid_phenols",
            "proanthocyanins",
            "color_intensity",
            "hue",
            "od280_od315_of_diluted_wines",
            "proline",
        ),
        build=_packed,
        sha256="df4630048c4a90b8484ea99be1175af4618682dd04e40533d4bb76354b11bd10",
    ),
    "breast": Origin(
        files=(
            Remote(
                f"{_UCI_COPY}/breast-cancer-wisconsin.data",
                19_889,
                "402c585309c399237740f635ef9919dc512cca12cbeb20de5e563a4593f22b64",
            ),
        ),
        names=(
            "clump_thickness",
            "cell_size_uniformity",
            "cell_shape_uniformity",
            "marginal_adhesion",
            "single_epithelial_cell_size",
            "bare_nuclei",
            "bland_chromatin",
            "normal_nucleoli",
            "mitoses",
        ),
        build=_breast,
        sha256="b25ddd18f2497ffb8c221c85a54fee89d6e81e9900221ce8c542c2f7fbd2ae13",
    ),
    "yeast": Origin(
        files=(
            Remote(
                f"{_BENCHMARKS}/uci/yeast.data.gz",
                11_851,
                "11f58a5f199184b3e0ec71b880365df360c6db365823c3d42a006d198f08acd9",
            ),
            Remote(
                f"{_BENCHMARKS}/uci/yeast.labels0.gz",
                679,
                "928ba1f1d2b3049ce36aa55f09eccaae660452b6a5bc1d820bb91a865a56d1fa",
            ),
        ),
        names=("mcg", "gvh", "alm", "mit", "erl", "pox", "vac", "nuc"),
        build=_packed,
        sha256="7bf509537b3352992c7e314189a7166eec68991aa417c45293b99d5108822e6f",
    ),
    "mnist": Origin(
        files=(
            Remote(
                f"{_MNIST}/t10k-images-idx3-ubyte.gz",
                1_648_877,
                "167310007f03058885c7e95e6c0b19c20de5c7fd3031f4cbdadc9014a523d80b",
            ),
            Remote(
                f"{_MNIST}/t10k-labels-idx1-ubyte.gz",
                4_542,
                "fc607395669ec21321ea83e4b82c0544b7e8e63ff5b34337c06bc0a17cc0da3c",
            ),
        ),
        names=tuple(f"p{i}" for i in range(28 * 28)),
        build=_mnist,
        sha256="2451777b4346429f9081869a55d66d7ea780dd30e1f3893f40a2e5134262fca5",
    ),
    "birch2": Origin(
        files=(
            Remote(
                f"{_AUTHORS}/birch2.txt", 524_999, "9e25e770b75a7be5a5393563035217871d31fa27a47a3a4a88aaf7a8f23d2c52"
            ),
            Remote(
                f"{_BENCHMARKS}/sipu/birch2.data.gz",
                537_958,
                "29c5e53b5ef35b0e6e7723a3e6969cf57164bd03c44ac0130c56b018cc6a8043",
            ),
            Remote(
                f"{_BENCHMARKS}/sipu/birch2.labels0.gz",
                1_072,
                "8303794b92c44978a9435d642bbd6d4582d1e2b1b589471b5c9b45ea4d1b25fb",
            ),
        ),
        names=("x", "y"),
        build=_birch2,
        sha256="f4eaed7fd665fefec57cb95d0659c81dcb49f6d5155caf4a82b61d32090708f6",
    ),
    "letter": Origin(
        files=(
            Remote(
                f"{_LETTER}/letter-recognition.data",
                712_610,
                "9b63b12c9425f919cf32a4de0ffbbef25960ddeced6a0c15fc8cf2dbb530b403",
            ),
        ),
        names=(
            "x_box",
            "y_box",
            "width",
            "high",
            "onpix",
            "x_bar",
            "y_bar",
            "x2bar",
            "y2bar",
            "xybar",
            "x2ybr",
            "xy2br",
            "x_ege",
            "xegvy",
            "y_ege",
            "yegvx",
        ),
        build=_letter,
        sha256="a5dbb5e10b9c13126a4a294acf2c0b4cdb6e309465fed61384c4f4141ca464d4",
    ),
}
"""By the name of the set. All but iris, which is part of the package, of FastLloyd's ten, and letter."""
