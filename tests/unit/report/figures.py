"""A small finished run, for the tests of its documents and tables."""

import math

from fastlloyd.kmeans.update import Movement
from fastlloyd.privacy.release import Release
from fastlloyd.report.document import Common, Network, Privacy, Round, Traffic, build_report, build_server_report
from fastlloyd.report.quality import Quality

RUN = "0123456789abcdef"


def releases(rounds=2, mechanism="gaussian", scale=1000.0):
    norm = "l1" if mechanism == "laplace" else "l2"
    return [
        Release(
            run=RUN, round=t, name=name, mechanism=mechanism, sensitivity=256.0, norm=norm, noise_scale=scale, data="ab"
        )
        for t in range(rounds)
        for name in ("relative sums", "counts")
    ]


def common(**changes):
    values = {
        "run": RUN,
        "protocol": "fastlloyd",
        "results_version": 1,
        "clients": 2,
        "authenticated": False,
        "parameters": {"k": 3, "d": 2, "rounds": 2, "n_total": 12345, "ring_bits": 32, "fraction_bits": 8},
        "rounds": [
            Round(round=t, seconds=0.25, clients_included=(2, 1), sent_bytes=95, received_bytes=96) for t in range(2)
        ],
        "setup_seconds": 1.5,
        "traffic": Traffic(payload_bytes=192, link_bytes=4000, messages=20, setup_bytes=1500),
        "network": Network(transport="shm"),
        "masking": "common",
    }
    return Common(**(values | changes))


def privacy(**changes):
    values = {
        "epsilon": 1.0,
        "delta": 8e-7,
        "spent_epsilon": 0.98765432,
        "neighbours": "add-remove record",
        "unit": "one record",
        "accountant": "test",
        "releases": [release.to_dict() for release in releases()],
    }
    return Privacy(**(values | changes))


def report(**changes):
    values = {
        "common": common(),
        "privacy": privacy(),
        "features": ["age", "dose"],
        "noisy_sizes": [10.4, -3.0, 12000.0],
        "quality": Quality(verdict="good", sentence="good: little noise"),
        "against": "any single other client",
        "movement": [Movement(0.25, 0.125), Movement(0.03, 0.0125)],
        "output": ["report.json", "centroids.csv"],
    }
    values |= changes
    return build_report(values.pop("common"), **values)


def server_report():
    return build_server_report(common(), releases=[release.to_dict() for release in releases()])


NO_NOISE = {"spent_epsilon": math.inf, "epsilon": math.inf, "delta": 0.0}
