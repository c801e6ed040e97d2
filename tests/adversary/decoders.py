"""A structure-aware fuzzer over everything that decodes what a peer, a file or a state folder holds.

Each subject has valid encodings. A record changes one of them, by the acts of `mutate` (lengths, edge numbers, JSON
leaves, missing and repeated keys, depth), and decodes it. What is accepted is looked at as the protocols do: plans are
compared with the configuration, messages give their numbers. Nothing but our own errors may come out.

    python -m tests.adversary.decoders --records 2000000
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import pkgutil
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import fastlloyd
from fastlloyd.data.categories import Categories
from fastlloyd.errors import FastLloydError, InternalError, PeerGone, Reason
from fastlloyd.lifecycle.align.columns import Columns, RecordCount, read_features
from fastlloyd.lifecycle.align.ids import IdTag
from fastlloyd.lifecycle.closing import Account, Chains, Counters, ResultDigest, Sent, Totals
from fastlloyd.lifecycle.hello import Go, Hello, PlanProposal, Ready
from fastlloyd.lifecycle.shared_secrets import PairCiphertext, PairPublicKey
from fastlloyd.net.link.frame import Notice, Start, StartDecision
from fastlloyd.net.link.sums import Order, encode_ranks, take_ranks
from fastlloyd.net.tcp.admission import Admission
from fastlloyd.net.tcp.tree import (
    decode_answer,
    decode_fault,
    decode_limit,
    encode_answer,
    encode_fault,
    encode_limit,
)
from fastlloyd.privacy.chain import FIRST_LINK, Mark, chained_line, read_line
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.fastlloyd import plan as fastlloyd_plan
from fastlloyd.protocols.feddp import proposal as feddp_plan
from fastlloyd.protocols.kfed import plan as kfed_plan
from fastlloyd.protocols.secfc import plan as secfc_plan
from fastlloyd.protocols.vertical_dp import plan as vertical_dp_plan
from fastlloyd.protocols.vertical_he import proposal as vertical_he_plan
from fastlloyd.wire.decode import decode, load_json
from fastlloyd.wire.header import SERVER, Header, Message, PartyId, decode_included
from tests.adversary.mutate import ACTS, Moment
from tests.protocols import support as horizontal
from tests.protocols.feddp import support as feddp
from tests.protocols.kfed import test_kfed as kfed
from tests.protocols.secfc import support as secfc
from tests.protocols.vertical_dp import support as vertical_dp
from tests.protocols.vertical_he import support as vertical_he
from tests.unit.protocol import test_sums as sums
from tests.unit.protocols.test_messages import GOLDEN

DOCUMENT = ("leaf", "leaf", "leaf", "drop", "extra", "odd", "flip", "cut", "half", "longer", "doubled", "splice")
BYTES = ("flip", "edge", "edge", "front", "inner", "splice", "random", "ones", "zeros", "bare", "cut", "half", "longer",
         "doubled")  # fmt: skip
# A plan that was decoded is compared with the configuration once in so many records: that takes milliseconds.
COMPARED = 40
_BOTH = (PartyId(1), PartyId(2))
_NO_PARTS = (
    "fastlloyd.adapters",  # needs the framework, and has no decoders of its own
    "fastlloyd.__main__",
    "fastlloyd.client",
    "fastlloyd.server",
    "fastlloyd.net.mpi.transport",
)


@dataclass
class Subject:
    """Something that decodes bytes.

    Attributes
    ----------
    covers : tuple of type
        The classes that have this decoder.
    decode : callable
        From bytes to a value.
    use : callable
        What is done with the value next.
    every : int
        `use` follows one in so many records.
    """

    name: str
    covers: tuple[type, ...]
    valid: tuple[bytes, ...]
    decode: Callable[[bytes], Any]
    use: Callable[[Any], object] = lambda value: None
    every: int = 1
    document: bool = field(init=False)

    def __post_init__(self) -> None:
        self.document = self.valid[0][:1] in (b"{", b"[")


@dataclass
class Tally:
    """What came out of a number of records."""

    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    unhandled: list[str] = field(default_factory=list)


def fuzz(subjects: list[Subject], records: int, seed: int) -> Tally:
    """Decode so many changed encodings; the same seed changes them alike."""
    draw, tally = random.Random(seed), Tally()
    for number in range(records):
        subject = draw.choice(subjects)
        body = change(subject, draw)
        try:
            value = subject.decode(body)
            if number % subject.every == 0:
                subject.use(value)
        except InternalError as error:
            tally.unhandled.append(f"{subject.name}: {error!r} on {body[:2000]!r}")
        except (ValueError, FastLloydError) as error:
            tally.refused[subject.name] += 1
            if not str(error) or len(str(error)) > 4000:
                tally.unhandled.append(f"{subject.name}: a sentence of {len(str(error))} characters on {body[:2000]!r}")
        except Exception as error:
            tally.unhandled.append(f"{subject.name}: {error!r} on {body[:2000]!r}")
        else:
            tally.accepted[subject.name] += 1
    return tally


def change(subject: Subject, draw: random.Random) -> bytes:
    """Change a valid encoding once, seldom two or three times."""
    body = draw.choice(subject.valid)
    for _ in range(draw.choice([1, 1, 1, 1, 2, 3])):
        act = draw.choice(DOCUMENT if subject.document else BYTES)
        try:
            body = ACTS[act](Moment(body, 0, None, draw, [], lambda raw: None, {}))[0]
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            continue  # what an earlier change left is no document any more
    return body


def subjects() -> list[Subject]:
    """Return everything that decodes, with valid encodings made by our own writers."""
    return [*_messages(), *_documents(), *_frames(), *_files(), *_plans()]


def _messages() -> Iterator[Subject]:
    for name, (message, form, _, body, _) in GOLDEN.items():
        kind = type(message)
        yield Subject(name, (kind,), (bytes.fromhex(body),), _reader(kind, form), _looker(kind, form))


def _reader(kind: type[Message], form: Any) -> Callable[[bytes], Any]:
    return lambda body: kind.read(body, form)


def _looker(kind: type[Message], form: Any) -> Callable[[Any], None]:
    """Call whatever gives a message's numbers: methods that need nothing, or the format."""
    named = [
        name
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
        and name not in ("body", "read")
        and not isinstance(inspect.getattr_static(kind, name), staticmethod | classmethod)
        and list(inspect.signature(method).parameters)[1:] in ([], ["format"])
    ]
    needs = {name: len(inspect.signature(getattr(kind, name)).parameters) == 2 for name in named}

    def look(message: Any) -> None:
        message.body()
        _ = message.payload_bytes
        for name, with_form in needs.items():
            if name == "noisy_total" and not form.with_total:
                continue
            getattr(message, name)(*([form] if with_form else []))

    return look


def _documents() -> Iterator[Subject]:
    account = Account(sent=Sent(payload_bytes=1, link_bytes=2, messages=3, setup_bytes=1), signature="ab" * 64)
    examples: list[tuple[Message, Any]] = [
        (Hello(("a", "b"), 0), None),
        (PlanProposal({"k": 3, "rounds": [{"radius": None}]}, 2), None),
        (Ready(), None),
        (Go(), None),
        (RecordCount(100), None),
        (IdTag(bytes(32)), None),
        (PairPublicKey(bytes(range(32)) * 38), None),
        (PairCiphertext(bytes(range(32)) * 34), None),
        (Chains({SERVER: bytes(32), PartyId(2): bytes(range(32))}), None),
        (Chains({SERVER: bytes(32)}, ResultDigest(bytes(range(32)), bytes(32))), None),
        (Counters({PartyId(1): account}), (PartyId(1),)),
        (Totals({SERVER: account, PartyId(1): account}), (SERVER, *_BOTH)),
    ]
    for message, form in examples:
        yield Subject(type(message).__name__, (type(message),), (message.body(),), _reader(type(message), form))
    columns = Columns(("age", "weight"), (0.0, 1.5), (100.0, 200.0))
    yield Subject("Columns", (Columns,), (columns.body(),), _reader(Columns, None), read_features)


def _frames() -> Iterator[Subject]:
    notice = Notice(1, Reason.GONE, 3, lost=True, by=2)
    yield Subject("notice", (Notice,), (notice.encode(),), lambda body: Notice.decode(body, 3))
    start = Start(2, Reason.BAD_CONFIG, bytes(8))
    yield Subject("start", (Start,), (start.encode(), Start().encode()), Start.decode)
    verdicts = (StartDecision(bytes(16)).encode(), StartDecision(bytes(16), notice, bytes(8)).encode())
    yield Subject("verdict", (StartDecision,), verdicts, lambda body: StartDecision.decode(body, 3))
    yield Subject("header", (Header,), (Header(33, 5).encode() + b"body",), Header.decode)
    yield Subject("bitmap", (), (b"\x05\x01",), lambda body: decode_included(body, 9))
    order = Order(type=32, round=1, ring_bits=32, elements=6, wait_ms=2000, late=(1, 4))
    yield Subject("order", (), (order.encode(),), Order.decode)
    yield Subject("clients of a sum", (), (encode_ranks((1, 2, 900)) + b"message",), take_ranks)
    fault = encode_fault(PeerGone("client 1 is gone", rank=1))[1:]
    yield Subject("fault", (), (fault,), lambda body: decode_fault(body, PartyId(1), "10.0.0.1:5"))
    yield Subject("limit", (), (encode_limit(1 << 16)[1:],), decode_limit)
    yield Subject("answer", (), (encode_answer(Admission.TAKEN)[1:],), decode_answer)


def _files() -> Iterator[Subject]:
    shared: dict[str, Any] = {"clients": 3, "known": 1, "unit": "grid of 2^-12"}
    releases = (
        Release(run="ab" * 16, round=3, name="sums", mechanism="gaussian", sensitivity=2.5, norm="l2", noise_scale=7.5),
        Release(round=0, name="n", mechanism="discrete laplace shares", sensitivity=8.0, norm="l1", noise_scale=80.0,
                **shared),
        Release(round=0, name="all", mechanism="none", sensitivity=8.0, norm="l1", noise_scale=0.0),
    )  # fmt: skip
    lines = tuple(release.to_json().encode() for release in releases)
    yield Subject("release", (Release,), lines, lambda body: Release.from_json(body.decode("utf-8")))
    chained = tuple(chained_line(release.to_json(), FIRST_LINK) for release in releases)
    yield Subject("ledger line", (), chained, lambda body: read_line(body, FIRST_LINK, "line 1", sealed=True))
    categories = Categories((("ward", (("A", 0.5), ("B", 0.0))), ("sex", (("f", 1.0),))))
    yield Subject(
        "categories",
        (Categories,),
        (_written(categories.to_json()),),
        lambda body: Categories.from_json(load_json(body)),
        lambda found: found.bounds(None),
    )
    mark = json.dumps(asdict(Mark(5, "ab" * 32))).encode()
    yield Subject("mark", (), (mark,), lambda body: decode(Mark, load_json(body), "it"))


def _plans() -> Iterator[Subject]:
    """Plans of every protocol, each compared with the configuration that it was made from."""
    points, names = horizontal.blobs(90, 3, 2), ("x1", "x2")
    for label, changes in {
        "fastlloyd": {},
        "fastlloyd-plus": {"protocol": "fastlloyd-plus"},
        "sulloyd": {"protocol": "sulloyd"},
        "pairwise": {"masking": "pairwise", "clients": 3},
    }.items():
        public = horizontal.parameters(90, 3, **changes)
        made = horizontal.plan_for(points, 3, **changes)
        yield _plan(label, made, lambda plan, p=public: fastlloyd_plan.check_plan(plan, p, d=2, names=names))
    data = feddp.mixture(60, 3, 2)
    own = feddp.parameters(60, 3)
    yield _plan("feddp", feddp.plan_for(data, 3), lambda p: feddp_plan.check_plan(p, own, d=2, names=feddp.names(2)))
    terms = sums.public()
    yield _plan("masked sums", sums.plan_of(), lambda p: sums.Means().check_plan(p, terms, sums.NAMES))
    merged = kfed.public_for(90, 3)
    yield _plan("kfed", kfed.plan_for(90, 3, 2), lambda p: kfed_plan.check_plan(p, merged, d=2, names=names))
    coded = secfc.plan_for(60, 2, 3)
    told = secfc.parameters(60, 3)

    def check_coded(plan: Any) -> None:
        secfc_plan.check_plan(plan, told, me=PartyId(1), names=coded.names, size=coded.sizes[0], caps=coded.sizes)

    yield _plan("secfc", coded, check_coded)
    for label, changes in {"vertical-dp": {}, "vertical-plain": {"protocol": "vertical-plain"}}.items():
        columns = vertical_dp.split(points, 2)
        sketch = vertical_dp.plan_for(columns, 3, **changes)
        parties = vertical_dp.parameters(90, 3, **changes)
        first = vertical_dp.features_of(columns)[0]
        yield _plan(label, sketch, lambda p, o=parties, f=first: vertical_dp_plan.check_plan(p, o, place=0, own=f))
    he = vertical_he.parameters(40, 2)
    kinds = vertical_he.names(1, 1)
    encrypted = vertical_he_plan.make_plan(he, kinds)
    yield _plan("vertical-he", encrypted, lambda p: vertical_he_plan.check_plan(p, he, kinds), every=20 * COMPARED)
    proposal = vertical_he_plan.Proposal(encrypted, (Columns(("a",), (0.0,), (1.0,)),) * 2)
    yield Subject(
        "proposal",
        (),
        (_written(asdict(proposal)),),
        lambda body: decode(vertical_he_plan.Proposal, load_json(body), ""),
        lambda found: [read_features(columns) for columns in found.features],
    )


def _plan(label: str, plan: Any, check: Callable[[Any], object], every: int = COMPARED) -> Subject:
    kind = type(plan)
    check(plan)
    return Subject(
        f"plan of {label}",
        (kind,),
        (_written(plan.to_json()),),
        lambda body: kind.from_json(load_json(body)),
        check,
        every,
    )


def _written(values: Any) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def decoders() -> set[type]:
    """Find all classes of the package that are messages, or that decode: `from_json`, or `decode` of frames."""
    found = set()
    for module in pkgutil.walk_packages(fastlloyd.__path__, "fastlloyd."):
        if module.name.startswith(_NO_PARTS):
            continue
        for kind in vars(importlib.import_module(module.name)).values():
            if not inspect.isclass(kind) or kind.__module__ != module.name:
                continue
            frame = module.name in ("fastlloyd.net.link.frame", "fastlloyd.wire.header") and "decode" in vars(kind)
            plain = hasattr(kind, "from_json") and not getattr(kind, "_is_protocol", False)
            if isinstance(getattr(kind, "TYPE", None), int) or frame or plain:
                found.add(kind)
    return found


def main() -> int:
    """Run from the command line."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--records", type=int, default=2_000_000)
    options.add_argument("--seed", type=int, default=int(time.time()))
    chosen = options.parse_args()
    np.seterr(all="raise", under="ignore")
    tally = fuzz(subjects(), chosen.records, chosen.seed)
    for name in sorted({*tally.accepted, *tally.refused}):
        print(f"{name:<24} accepted {tally.accepted[name]:>8} refused {tally.refused[name]:>8}")
    total = sum(tally.accepted.values()) + sum(tally.refused.values())
    print(f"seed {chosen.seed}: {total} records handled, {len(tally.unhandled)} unhandled")
    for line in tally.unhandled[:20]:
        print(line)
    return 1 if tally.unhandled else 0


if __name__ == "__main__":
    raise SystemExit(main())
