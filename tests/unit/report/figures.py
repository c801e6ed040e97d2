"""A small finished run, for the tests of its documents and tables."""

import math

from fastlloyd.kmeans.update import Movement
from fastlloyd.lifecycle.closing import Account, Sent
from fastlloyd.privacy.release import Release
from fastlloyd.report.claim import Claim
from fastlloyd.report.document import build_report, build_server_report, finite, machine, public_releases, timing
from fastlloyd.report.quality import Quality
from fastlloyd.run.closing import traffic_entry
from fastlloyd.wire.header import SERVER

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


def round_entry(t, seconds=0.25, sent_bytes=95, received_bytes=96):
    """Return a round of two clients, as a report has it."""
    return {
        "round": t,
        "seconds": seconds,
        "clients_included": [1, 2],
        "sent_bytes": sent_bytes,
        "received_bytes": received_bytes,
    }


def common(**changes):
    """Return what report.json and server.json share."""
    rounds = changes.get("rounds", [round_entry(t) for t in range(2)])
    sent = Sent(payload_bytes=192, link_bytes=4000, messages=20, setup_bytes=1500)
    return {
        "protocol": "fastlloyd",
        "results_version": 1,
        "run": RUN,
        "parties": {"clients": 2, "authenticated": False, "masking": "common"},
        "parameters": {"k": 3, "d": 2, "rounds": 2, "n_total": 12345, "ring_bits": 32, "fraction_bits": 8},
        "rounds": rounds,
        "timing": timing(1.5, rounds),
        "traffic": traffic_entry({SERVER: Account(sent=sent)}, rounds),
        "network": {
            "transport": "shm",
            "delay_seconds": 0.0,
            "profile": None,
            "shaping": None,
            "key_exchange": ["X25519"],
        },
        "machine": machine(),
        **changes,
    }


def privacy(**changes):
    values = {
        "epsilon": 1.0,
        "delta": 8e-7,
        "spent_epsilon": 0.98765432,
        "neighbours": "add-remove record",
        "unit": "one record",
        "accountant": "test",
        "budget": None,
        "releases": [release.to_dict() for release in releases()],
        **({} if "lifetime_epsilon" in changes else {"note": "runs add up"}),
        **changes,
    }
    epsilons = {name: finite(values[name]) for name in ("epsilon", "spent_epsilon")}
    return {**values, **epsilons, "releases": public_releases(values["releases"])}


def report(**changes):
    values = {
        "common": common(),
        "privacy": privacy(),
        "features": ["age", "dose"],
        "noisy_sizes": [10.4, -3.0, 12000.0],
        "quality": Quality(verdict="good", sentence="good: little noise").to_dict(),
        "movement": [Movement(0.25, 0.125), Movement(0.03, 0.0125)],
        "output": ["report.json", "centroids.csv"],
        "signatures": None,
    }
    values |= changes
    names, sizes, moved = (values.pop(name) for name in ("features", "noisy_sizes", "movement"))
    moved = None if moved is None else [one and one._asdict() for one in moved]
    spent = values["privacy"]
    claim = Claim(
        epsilon=math.inf if spent["epsilon"] is None else spent["epsilon"],
        delta=spent["delta"],
        against="any single other client",
        unit=spent["unit"],
    )
    result = {"features": list(names), "noisy_sizes": None if sizes is None else list(sizes), "movement": moved}
    if (left_out := values.pop("left_out", None)) is not None:
        result["left_out"] = left_out
    return build_report(values.pop("common"), claim=claim, result=result, **values)


def server_report(**changes):
    return build_server_report(common(**changes), releases=[release.to_dict() for release in releases()])


NO_NOISE = {"spent_epsilon": math.inf, "epsilon": math.inf, "delta": 0.0}
