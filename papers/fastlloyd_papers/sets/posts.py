"""The Stack Overflow sets of FedDP-KMeans, made of the archive that pfl-research and TensorFlow Federated read.

A user is a client, a record the embedding of a post by a sentence model. As in the authors' code a user's posts of the
archive's training part count whose first tag is one of the set's two topics, questions and answers alike, and the
topic that the paper calls "plotting" is the tag `plot`. The server has 20 of the clients' records, 10 of each topic
(the text; the code draws 20 of all), and 1,000 posts that have neither tag, chosen by a digest of their place in the
whole training part (the code takes the first 1,000 of the file).

The model is not part of this package: `sentence-transformers` fetches it when a set is made, and the record names it.

Source: FedDP-KMeans, App. G.1, and its published code (`data/stackoverflow/`, `data/data.py`); Reimers and Gurevych
(2019).
"""

from __future__ import annotations

import hashlib
import heapq
import importlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, DataError
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream
from fastlloyd_papers.sets.example import read_example
from fastlloyd_papers.sets.source import Made, MadeSet, PublicTable, remember

TOPICS: Mapping[str, tuple[str, str]] = {
    "stackoverflow-machine-learning-math": ("machine-learning", "math"),
    "stackoverflow-github-pdf": ("github", "pdf"),
    "stackoverflow-facebook-hibernate": ("facebook", "hibernate"),
    "stackoverflow-plotting-cookies": ("plot", "cookies"),
}
"""The two tags of each set's clients."""
PAPER_CLIENTS: Mapping[str, int] = dict(zip(TOPICS, (10_394, 9_237, 23_266, 2_720), strict=True))
NEEDS = (
    "stackoverflow.sqlite: https://storage.googleapis.com/tff-datasets-public/stackoverflow.sqlite.lzma, unpacked by "
    "`xz -d --format=lzma` or `xz -d`; and `pip install sentence-transformers`"
)
MODEL = "all-MiniLM-L6-v2"
_FILE = "stackoverflow.sqlite"
_INSIDE_EACH, _OUTSIDE = 10, 1000
_BATCH = 4096

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""From texts to their embeddings, shape (n, d)."""


@dataclass(slots=True)
class _Drawn:
    """What is kept for one set: clients' posts by topic, and the strangers with the smallest digests."""

    posts: list[tuple[str, str, int]] = field(default_factory=list)
    strangers: list[tuple[int, str]] = field(default_factory=list)


def embed_by_model(texts: Sequence[str]) -> NDArray[np.float32]:
    """Embed texts by the paper's sentence model.

    Raises
    ------
    ConfigError
        The package is not installed, or has no model.
    """
    try:
        model = importlib.import_module("sentence_transformers").SentenceTransformer(MODEL)
    except ImportError as error:
        raise ConfigError(f"the posts are embedded by {MODEL}: `pip install sentence-transformers`") from error
    except OSError as error:
        raise ConfigError(f"{MODEL} is not here and cannot be fetched ({error}); put it into the cache") from error
    return np.asarray(model.encode(list(texts)), dtype=np.float32)


def make_posts(folder: Path, embed: Embed = embed_by_model) -> Made:
    """Make the four sets.

    Raises
    ------
    ConfigError
        The file or the model is missing.
    DataError
        The file is not what it should be, or has too few posts of a topic.
    """
    path = folder / _FILE
    if not path.is_file():
        raise ConfigError(f"--from {folder}: no {_FILE} in it; expected {NEEDS}")
    drawn = _draw(path)
    return Made(tuple(_make_one(path, name, own, embed) for name, own in drawn.items()), (remember(path),))


def _draw(path: Path) -> dict[str, _Drawn]:
    """Go through the training part once."""
    found = {name: _Drawn() for name in TOPICS}
    topic_of = {tag: (name, place) for name, tags in TOPICS.items() for place, tag in enumerate(tags)}
    for number, client, blob in _rows(path):
        try:
            post = read_example(blob, ("tags", "tokens"))
        except ValueError as error:
            raise DataError(f"{path}, row {number}: expected a post with tags and tokens ({error})") from error
        tags = post["tags"].split("|")
        if tags[0] in topic_of:
            name, place = topic_of[tags[0]]
            found[name].posts.append((client, post["tokens"], place))
        rank = int.from_bytes(hashlib.blake2b(b"%d" % number, digest_size=8).digest(), "big")
        for name, own in found.items():
            if not set(tags).isdisjoint(TOPICS[name]):
                continue
            # A heap of the smallest: a draw without repetition that does not depend on how many there are.
            if len(own.strangers) < _OUTSIDE:
                heapq.heappush(own.strangers, (-rank, post["tokens"]))
            elif -rank > own.strangers[0][0]:
                heapq.heapreplace(own.strangers, (-rank, post["tokens"]))
    return found


def _rows(path: Path) -> Iterator[tuple[int, str, bytes]]:
    """Read the training part in the order of the file; nothing is written."""
    query = "SELECT rowid, client_id, serialized_example_proto FROM examples WHERE split_name = 'train' ORDER BY rowid"
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            cursor = connection.execute(query)
            while rows := cursor.fetchmany(_BATCH):
                for number, client, blob in rows:
                    if not isinstance(client, str) or not isinstance(blob, bytes):
                        raise DataError(f"{path}, row {number}: expected a client's name and a post")
                    yield number, client, blob
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise DataError(f"{path}: expected the archive's database of posts ({error}); unpack it again") from error


def _make_one(path: Path, name: str, drawn: _Drawn, embed: Embed) -> MadeSet:
    by_topic = [[place for place, post in enumerate(drawn.posts) if post[2] == topic] for topic in (0, 1)]
    for tag, places in zip(TOPICS[name], by_topic, strict=True):
        if not places:
            raise DataError(f"{path}: expected posts with the first tag {tag}, got none")
    if not drawn.strangers:
        raise DataError(f"{path}: expected posts without the tags {' and '.join(TOPICS[name])}, got none")
    strangers = [text for _, text in sorted(drawn.strangers, reverse=True)]
    vectors = _embedded([text for _, text, _ in drawn.posts] + strangers, embed)
    own, others = vectors[: len(drawn.posts)], vectors[len(drawn.posts) :]
    stream = PublicStream(0, f"{domains.SERVER_ROWS}{name}")
    chosen = [places[i] for places in by_topic for i in stream.integers(0, len(places) - 1, _INSIDE_EACH).tolist()]
    numbers: dict[str, int] = {}
    owners = np.array([numbers.setdefault(client, len(numbers)) for client, _, _ in drawn.posts], dtype=np.float64)
    names = tuple(f"e{i + 1}" for i in range(vectors.shape[1]))
    told = f"{name}: {len(own):,} records of {len(numbers):,} users, embedded by {MODEL}"
    if len(numbers) != PAPER_CLIENTS[name]:
        told += f"; the paper has {PAPER_CLIENTS[name]:,} users"
    table = np.hstack([owners[:, None], own.astype(np.float64)])
    return MadeSet(
        (
            PublicTable(name, ("owner", *names), table),
            PublicTable(f"{name}-server", names, np.vstack([own[chosen], others]).astype(np.float64)),
        ),
        (f"{told}.",),
    )


def _embedded(texts: Sequence[str], embed: Embed) -> NDArray[np.float32]:
    found: NDArray[Any] = embed(texts)
    if found.ndim != 2 or len(found) != len(texts) or not np.isfinite(found).all():
        raise DataError(f"{MODEL}: expected {len(texts)} vectors of finite numbers, got an array {found.shape}")
    return found
