"""Whole runs in one thread: settings that no other whole run takes, and those that none begins with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastlloyd.errors import FastLloydError
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Result
from fastlloyd.run.run_file import with_values
from fastlloyd.run.simulation import run_together

IRIS: dict[str, Any] = {"dataset": "iris", "bounds": "0,10", "k": 3, "epsilon": 60.0}
ROWS = {"rows": 64}


def config(protocol: str, values: dict[str, Any], **more: Any) -> RunConfig:
    return with_values(RunConfig(protocol=protocol, **{**IRIS, **more}), {protocol: values})


def live(config: RunConfig, clients: int) -> Result:
    ended = run_together(config, clients)
    return next(one.result for one in ended.outcomes.values() if isinstance(one.result, Result))


def steps(result: Result) -> set[str]:
    return {release.name for release in result.releases}


@pytest.mark.parametrize(
    ("values", "parties", "others"),
    [
        ({"local": "box-tree", **ROWS}, 2, {"sketch rows"}),
        ({"local": "lloyd", "composition": "paper", "rows": 4, "weights": "basic"}, 2, {"sketch rows"}),
        ({"phantoms": "paper", **ROWS}, 3, {"none"}),
        # More cells than are kept: light ones are sampled.
        ({"local_clusters": 41, "rows": 8}, 3, {"sketch rows", "gaussian"}),
    ],
)
def test_vertical_dp_has_centres_of_all_columns(values: dict[str, Any], parties: int, others: set[str]) -> None:
    result = live(config("vertical-dp", values), parties)
    assert result.centroids is not None and result.centroids.shape == (3, 4)
    assert ((result.centroids >= 0) & (result.centroids <= 10)).all()
    assert (result.claim.epsilon == 60.0) == (values.get("phantoms") != "paper")
    assert sum(result.noisy_sizes or ()) == pytest.approx(150, abs=15)
    assert {release.mechanism for release in result.releases} == {"laplace", *others}


@pytest.mark.parametrize(
    ("values", "more", "expected"),
    [
        ({"start": "server-kmeans++"}, {}, {"sums", "counts"}),
        ({"start": "server-lloyds"}, {}, {"sums", "counts"}),
        ({"start": "sphere-packing"}, {}, {"sums", "counts"}),
        ({"lloyd_share": 0.4}, {"rounds": 2}, {"outer product", "weights", "sums", "counts"}),
        ({"start": "private", "norm_bound": 1.5, "proxies": 30}, {}, {"outer product", "weights", "sums", "counts"}),
    ],
)
def test_feddp_releases_what_its_start_asks_for(
    values: dict[str, Any], more: dict[str, Any], expected: set[str]
) -> None:
    result = live(config("feddp", values, **more), 2)
    assert steps(result) == expected
    assert result.centroids is not None and result.centroids.shape == (3, 4)


@pytest.mark.parametrize(("local_k", "k"), [(2, 5), (2, 3), (3, 3)])
def test_kfed_gives_k_centres_of_however_many_the_clients_have(local_k: int, k: int) -> None:
    result = live(config("kfed", {"local_k": local_k}, k=k, epsilon=None), 2)
    assert result.centroids is not None and result.centroids.shape == (k, 4)
    # Of fewer than k all are taken, some of them twice.
    assert len(np.unique(result.centroids, axis=0)) == min(k, 2 * local_k)


@pytest.mark.parametrize(
    ("values", "more"),
    [
        ({"scheme": "linear"}, {"rounds": 6}),  # enough rounds for the computing party's columns to enter by steps
        ({"scheme": "projection", "shrink": False}, {"k": 2}),
    ],
)
def test_vertical_he_finds_the_centres_in_its_noise(values: dict[str, Any], more: dict[str, Any]) -> None:
    result = live(config("vertical-he", values, epsilon=100.0, **more), 1)
    assert result.centroids is not None and result.centroids.shape == (more.get("k", 3), 4)
    assert ("soft steps" in steps(result)) == ("rounds" in more)
    assert result.noisy_sizes is not None and sum(result.noisy_sizes) == pytest.approx(150, abs=15)


@pytest.mark.parametrize(
    ("protocol", "values", "more", "clients", "sentence"),
    [
        ("fastlloyd-plus", {"start": "grid"}, {}, 2, "expected at most"),
        ("fastlloyd-plus", {"start": "grid", "grid": 0.0}, {"columns": ("sepal_length", "sepal_width")}, 2, "grid = 0"),
        ("lloyd", {}, {"choose_k": True, "epsilon": None}, 2, "does not choose the number of clusters"),
        ("fastlloyd", {}, {"known_shares": 2}, 3, "--known-shares is for noise in shares"),
        ("feddp", {"outer_clip": 1.0}, {}, 2, "expected it left out at record level"),
        ("feddp", {"users": "who"}, {}, 2, "add --set feddp.privacy_level=client"),
        ("feddp", {"users": "who", "privacy_level": "client"}, {}, 2, "a demonstration with users is"),
        ("feddp", {"server_share": 0.99}, {}, 3, "too few for 3 clients"),
        ("feddp", {"start": "private"}, {"choose_k": True}, 2, "--k auto: the elbow needs the server"),
        ("feddp", {}, {}, 1, "expected at least 2 clients"),
        ("feddp", {}, {"min_clients": 2}, 3, "--min-clients 2 does not go with --masking pairwise"),
        ("vertical-dp", {"local": "shortened", "composition": "paper"}, {}, 2, "has Gaussian noise"),
        ("vertical-dp", {}, {}, 1, "joins the columns of 2 to 64 parties"),
        ("vertical-dp", {}, {"k": 151}, 2, "--k: expected at most the public N = 150"),
        ("vertical-he", {"scheme": "projection"}, {}, 1, "is not possible"),
        ("vertical-he", {"scheme": "linear", "mode": "threshold"}, {}, 2, "is not possible"),
        ("vertical-he", {"mode": "two-party"}, {}, 2, "expected 2 parties, got 3"),
        ("vertical-he", {}, {"k": 257}, 1, "expected a whole number from 1 to 256"),
        ("secfc", {"segments": 4}, {"epsilon": None}, 5, "secfc"),
    ],
)
def test_a_life_is_not_begun_with_what_does_not_fit(
    protocol: str, values: dict[str, Any], more: dict[str, Any], clients: int, sentence: str
) -> None:
    with pytest.raises(FastLloydError, match=sentence) as caught:
        run_together(config(protocol, values, **more), clients)
    assert caught.value.exit_code == 2
