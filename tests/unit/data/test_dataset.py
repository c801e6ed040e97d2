"""Public splits: every row once, alike everywhere, from the seed alone."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from fastlloyd.data.dataset import public_permutation, split_rows
from fastlloyd.errors import ConfigError, DataError


def assert_partition(parts, n):
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))


def test_the_permutation_is_fixed_for_ever():
    # A change of these numbers would give parties of two versions different records of one data set.
    assert public_permutation(10, 0).tolist() == [8, 1, 4, 5, 7, 3, 2, 6, 9, 0]
    assert public_permutation(10, 1).tolist() == [2, 1, 0, 7, 4, 5, 9, 8, 3, 6]


def test_the_permutation_orders_the_draws_of_a_keyed_stream():
    key = hashlib.sha256(b"fastlloyd public permutation 1\x00" + b"42").digest()
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * 50))
    draws = [int.from_bytes(stream[8 * i : 8 * i + 8], "little") for i in range(50)]
    assert public_permutation(50, 42).tolist() == sorted(range(50), key=draws.__getitem__)


def test_every_place_is_equally_likely():
    # Where row 0 of 4 lands over 4,000 public seeds: chi-square with 3 degrees of freedom; 30.7 is
    # exceeded by chance with probability 1e-6. The seeds are fixed, so the outcome is too.
    places = np.bincount([int(np.flatnonzero(public_permutation(4, s) == 0)[0]) for s in range(4000)], minlength=4)
    assert ((places - 1000) ** 2 / 1000).sum() < 30.7


@pytest.mark.parametrize("how", ["iid", "even", "label"])
@pytest.mark.parametrize(("n", "clients"), [(10, 3), (7, 7), (5, 1), (1000, 16)])
def test_sizes_differ_by_at_most_one(how, n, clients):
    parts = split_rows(n, clients, how, 5, labels=np.arange(n) % 3)
    assert_partition(parts, n)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert len(parts) == clients


def test_iid_depends_on_the_seed_and_even_does_not():
    first, again, other = (np.concatenate(split_rows(100, 4, "iid", seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert [part.tolist() for part in split_rows(5, 2, "even", 1)] == [[0, 1, 2], [3, 4]]


def test_label_gives_clients_different_classes():
    labels = np.array([2, 0, 1, 0, 2, 1])
    parts = split_rows(6, 3, "label", 0, labels=labels)
    assert [labels[part].tolist() for part in parts] == [[0, 0], [1, 1], [2, 2]]
    assert parts[0].tolist() == [1, 3]


def test_label_needs_labels():
    with pytest.raises(ConfigError, match="needs a data set with labels"):
        split_rows(6, 3, "label", 0)
    with pytest.raises(ConfigError, match="6 rows but labels of shape"):
        split_rows(6, 3, "label", 0, labels=np.zeros(5, dtype=np.int64))


@pytest.mark.parametrize("text", ["client_id\n2\n1\n2\n1\n", "2\n1\n2\n1\n"])
def test_a_file_names_the_client_of_each_row(tmp_path, text):
    path = tmp_path / "owners.csv"
    path.write_text(text)
    assert [part.tolist() for part in split_rows(4, 2, str(path), 0)] == [[1, 3], [0, 2]]


@pytest.mark.parametrize(
    ("text", "error", "sentence"),
    [
        ("c\n1\n2\n", ConfigError, "2 rows, but the data set has 4"),
        ("c\n1\n2\n3\n1\n", ConfigError, "row 3: expected a client number from 1 to 2"),
        ("c\n1\n0\n2\n1\n", ConfigError, "row 2: expected a client number from 1 to 2"),
        ("c\n1\n1.5\n2\n1\n", ConfigError, "row 2: expected a client number from 1 to 2"),
        ("c\n1\n1\n1\n1\n", ConfigError, "client 2 gets no row"),
        ("c,d\n1,1\n", ConfigError, "one column of client numbers, got 2"),
        ("c\n1\nx\n2\n1\n", DataError, "row 2"),
    ],
)
def test_split_files_that_do_not_fit(tmp_path, text, error, sentence):
    path = tmp_path / "owners.csv"
    path.write_text(text)
    with pytest.raises(error, match=sentence):
        split_rows(4, 2, str(path), 0)


@pytest.mark.parametrize(("n", "clients"), [(2, 3), (5, 0)])
def test_every_client_needs_a_row(n, clients):
    with pytest.raises(ConfigError, match=f"cannot split {n} rows among {clients} clients"):
        split_rows(n, clients, "iid", 0)


def test_unknown_ways_to_split():
    with pytest.raises(ConfigError, match="expected iid, even, label or a CSV file"):
        split_rows(4, 2, "fair", 0)
