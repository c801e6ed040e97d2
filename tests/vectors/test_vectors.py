"""Known answers: the package against vectors that scripts beside them make from the documents alone.

Each `make_NAME.py` has a function `vectors` and imports nothing of the package; NAME.json holds what it gives.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import itertools
import json
from datetime import datetime
from decimal import getcontext
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from fastlloyd.crypto import hybrid
from fastlloyd.crypto.commitment import derive_opening
from fastlloyd.crypto.hybrid import HybridKey
from fastlloyd.crypto.link.identity import Credentials, Identity, sign
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.lifecycle.closing import compare_through_server
from fastlloyd.lifecycle.same_secret import THINGS, EqualityProof, EqualityTag, collect_tags
from fastlloyd.lifecycle.sealed import SealedParts, SealedSeed, Sealing, SealKey, SealKeys, relay_seed
from fastlloyd.lifecycle.shared_secrets import (
    PairCiphertext,
    PairPublicKey,
    SeedConfirmation,
    SeedContribution,
    agree_pairs,
    agree_seed,
)
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import NO_HISTORY, MaskGenerator, continue_history
from fastlloyd.masking.pairwise import PairSecrets, PairwiseMasks
from fastlloyd.party.transcript import Transcript
from fastlloyd.privacy.chain import Mark
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.fastlloyd.plan import Outline, Plan, make_plan
from fastlloyd.protocols.fastlloyd.plus import radius
from fastlloyd.protocols.fastlloyd.rounds import Centers, first_centers, local_update, post_process
from fastlloyd.protocols.fastlloyd.settings import settings_from
from fastlloyd.protocols.secfc.math.signs import sign_masks
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import derive
from fastlloyd.report.signed import SignedRecord
from fastlloyd.run.simulation import Simulation
from fastlloyd.wire.header import COMPARE_ROUND, SERVER, PartyId, clients
from tests.protocols.support import parameters, run
from tests.vectors import make_plus, mlkem768

FOLDER = Path(__file__).parent
GENERATORS = sorted(path.stem for path in FOLDER.glob("make_*.py"))


# With a histogram, a survey, neither of them, and clusters that are merged on the way.
PLUS_RUNS = [
    pytest.param(4, 2, 240, "0.5", {"wide": 1.0}, id="histogram"),
    pytest.param(4, 3, 240, "0.5", {"start": "survey", "wide": 1.0}, id="survey"),
    pytest.param(3, 5, 200, "1.5", {"survey": 0.0, "wide": 1.0}, id="neither"),
    pytest.param(3, 5, 300, "0.25", {}, id="merged"),
    pytest.param(6, 2, 300, "1.0", {"start": "survey", "shrink": False}, id="not weighed"),
]


def known(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


@pytest.mark.parametrize("generator", GENERATORS)
def test_a_generator_gives_its_file_without_the_package(generator: str) -> None:
    precision = getcontext().prec
    module = importlib.import_module(f"tests.vectors.{generator}")
    assert json.loads(json.dumps(module.vectors())) == known(generator.removeprefix("make_"))
    assert getcontext().prec == precision, "another generator would compute with this one's digits"
    for node in ast.walk(ast.parse((FOLDER / f"{generator}.py").read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not any(name.split(".")[0] == "fastlloyd" for name in names)


@pytest.mark.parametrize("case", known("start"), ids=lambda case: f"k={case['k']}, d={case['d']}")
def test_the_default_start(case: dict[str, Any]) -> None:
    k, d = case["k"], case["d"]
    public = parameters(500, k, protocol="lloyd", seed=case["seed"], ring_bits=64)
    plan = make_plan(public, d=d, names=tuple(f"x{h}" for h in range(d)))
    found = first_centers(_replaced(plan, fraction_bits=case["fraction_bits"]))
    assert found.grid.tolist() == case["centers"]
    assert (found.exact * 2.0 ** case["fraction_bits"] == found.grid).all()


@pytest.mark.parametrize("case", known("secfc"), ids=lambda case: f"w={case['w']}")
def test_what_the_server_of_secfc_decodes(case: dict[str, Any]) -> None:
    count = len(case["values"])
    masks = sign_masks(count, key=bytes.fromhex(case["key"]), round_=case["message"], mantissa=case["w"])
    factors, noise = masks.integers()
    for i, value in enumerate(case["values"]):
        decoded = [factors[i] * int(difference) + noise[i] for difference in case["differences"]]
        assert list(map(str, decoded)) == value["decoded"]
        assert (bool(masks.flipped[i]), int(masks.spare[i])) == (value["tails"], value["z"])


def history(case: dict[str, Any], t: int) -> bytes:
    """The history of round t: of the replies to all rounds before it."""
    return reduce(continue_history, map(bytes.fromhex, case["replies"][:t]), NO_HISTORY)


@pytest.mark.parametrize("bits", [32, 64])
def test_common_masks(bits: int) -> None:
    case = known("masks")
    run, elements, everybody = bytes.fromhex(case["run_id"]), case["elements"], clients(3)
    generator = MaskGenerator(bytes.fromhex(case["seed"]), Ring(bits), elements, run)
    for t, expected in case["common"][str(bits)].items():
        told = history(case, int(t))
        assert [generator.mask(int(t), me, told).tolist() for me in everybody] == [
            expected[str(me.rank)] for me in everybody
        ]
        for included in (everybody, everybody[1:], everybody[:1]):
            total = [sum(column) % 2**bits for column in zip(*(expected[str(me.rank)] for me in included))]
            assert generator.total(int(t), included, told).tolist() == total


def test_the_common_seed() -> None:
    case = known("masks")
    contributions = b"".join(bytes.fromhex(part) for part in case["contributions"])
    assert derive(contributions, domains.SEED, bytes.fromhex(case["run_id"])).hex() == case["seed_of_contributions"]


def choose_messages(monkeypatch: pytest.MonkeyPatch, messages: dict[str, str]) -> None:
    """Let parties encapsulate with known random bytes, by the program that the vectors were made with."""
    honest, now = HybridKey.encapsulate, []

    def encapsulate(key: HybridKey, other: PartyId, public: bytes) -> tuple[bytes, bytes]:
        now[:] = [bytes.fromhex(messages[f"{key._me.rank} {other.rank}"])]
        return honest(key, other, public)

    monkeypatch.setattr(HybridKey, "encapsulate", encapsulate)
    monkeypatch.setattr(hybrid, "_encapsulate", lambda public: mlkem768.encapsulate(public, *now))


def play(lives: dict[PartyId, Any]) -> tuple[dict[PartyId, Any], dict[tuple[int, int, int], str]]:
    """Run the parties; return their results, and what was sent: by type, sender and receiver."""
    said: dict[tuple[int, int, int], str] = {}

    def note(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes:
        said[header.type, sender.rank, receiver.rank] = body.hex()
        return body

    return Simulation(lives, note).run(), said


def test_the_secrets_of_pairs_and_a_seed_over_links(monkeypatch: pytest.MonkeyPatch) -> None:
    case, everybody = known("masks"), clients(3)
    run = bytes.fromhex(case["run_id"])
    choose_messages(monkeypatch, case["messages"])

    def life(me: PartyId) -> Any:
        bound = {"run_id": run, "context": bytes(32)}
        drawn: Any = Drawn(case["private_keys"][me.rank - 1], case["contributions"][me.rank - 1])
        pairs = yield from agree_pairs(me, everybody, **bound, secret=drawn)
        seed = yield from agree_seed(pairs, **bound, secret=drawn)
        return pairs, seed

    found, said = play({me: life(me) for me in everybody})
    for me in everybody:
        pairs, seed = found[me]
        for other, secret in pairs.secrets.items():
            first, second = sorted((me, other))
            assert secret.hex() == case["pair_secrets"][f"{first.rank} {second.rank}"]
        assert seed.hex() == case["seed_of_contributions"]
    expected = {
        (PairPublicKey.TYPE, me.rank, other.rank): case["public_keys"][me.rank - 1]
        for me, other in itertools.permutations(everybody, 2)
    }
    for kind, name in ((PairCiphertext, "ciphertexts"), (SeedContribution, "sealed_contributions")):
        expected |= {(kind.TYPE, *map(int, pair.split())): body for pair, body in case[name].items()}
    tags = {key: body for key, body in said.items() if key[0] == SeedConfirmation.TYPE}
    assert {key: body for key, body in said.items() if key not in tags} == expected
    assert len(tags) == 6


@pytest.mark.parametrize("i,j", [(1, 2), (1, 3), (2, 3)])
def test_both_clients_of_a_pair_come_to_the_known_secret(i: int, j: int) -> None:
    """Without the known random bytes: whoever has the ciphertext and its key decapsulates."""
    case, run = known("masks"), bytes.fromhex(known("masks")["run_id"])
    key = HybridKey(bytes.fromhex(case["private_keys"][j - 1]), PartyId(j), purpose=domains.PAIR, run_id=run)
    assert key.public.hex() == case["public_keys"][j - 1]
    made, other = (bytes.fromhex(text) for text in (case["ciphertexts"][f"{i} {j}"], case["public_keys"][i - 1]))
    assert key.decapsulate(PartyId(i), other, made).hex() == case["pair_secrets"][f"{i} {j}"]


@pytest.mark.parametrize("bits", [32, 64])
def test_pairwise_masks(bits: int) -> None:
    case = known("masks")
    run, elements, everybody = bytes.fromhex(case["run_id"]), case["elements"], clients(3)
    for me in everybody:
        secrets = {
            other: bytes.fromhex(case["pair_secrets"]["{} {}".format(*sorted((me.rank, other.rank)))])
            for other in everybody
            if other != me
        }
        masks = PairwiseMasks(PairSecrets(me, secrets), Ring(bits), elements, run)
        for t, expected in case["pairwise"][str(bits)].items():
            assert masks.mask(int(t), me, history(case, int(t))).tolist() == expected[str(me.rank)]


@pytest.mark.parametrize("case", known("ledger"), ids=lambda case: f"{case['old']} old lines")
def test_the_chain_of_a_ledger(case: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    old = case["old"]
    releases = [Release.from_json(json.dumps(plain)) for plain in case["releases"]]
    path.write_text("".join(line + "\n" for line in case["lines"][:old]))
    with Ledger(path) as ledger:
        for number, release in enumerate(releases[old:], start=old):
            ledger.record([release])
            assert ledger.mark == Mark(number + 1, case["links"][number])
    assert path.read_text().splitlines() == case["lines"]
    with Ledger(path) as ledger:
        assert ledger.releases == tuple(releases)


@pytest.mark.parametrize("case", known("plus"), ids=lambda case: f"k={case['k']}, d={case['d']}, g={case['cells']}")
def test_fastlloyd_plus_step_by_step(case: dict[str, Any]) -> None:
    plan = _plus_plan(case)
    q = plan.fraction_bits
    assert q == case["fraction_bits"]
    assert plan.plus is not None
    assert plan.plus.cells == case["cells"]
    for planned, scales in zip(plan.rounds, case["scales"], strict=True):
        assert np.allclose([planned.sum_scale, planned.count_scale], np.array(scales, float), rtol=1e-12, atol=0)
    assert [planned.radius for planned in plan.rounds] == case["nominal_radii"]
    assert [planned.clusters for planned in plan.rounds] == case["clusters"]
    coordinates = np.array(case["records"], dtype=np.int32)
    norms = (coordinates.astype(np.int64) ** 2).sum(axis=1).astype(np.float64)
    records = GridPoints(coordinates.T.copy(), norms, q)
    given = case.get("given")
    centers: Centers = first_centers(plan, None if given is None else np.array(given))
    assert centers.grid.tolist() == case["start"]
    for t, expected in enumerate(case["played"]):
        before, noisy = centers, np.array(expected["noisy"], dtype=np.int64)
        assert before.state is not None
        if plan.rounds[t].radius is not None:
            assert list(radius(before.state, plan, t)) == expected["radius"]
        assert local_update(records, before, plan, t).tolist() == expected["update"]
        centers = post_process(noisy, before, plan, t)
        assert centers.state is not None
        assert _near(centers.exact, expected["centers"])
        assert (centers.grid == np.rint(np.array(expected["centers"], float) * 2.0**q)).all()
        for name in ("counts", "count_variance", "variance", "middle", "deviation", "records"):
            assert _near(getattr(centers.state, name), expected[name]), (t, name)
        assert _near(centers.noisy_counts, expected["counts"])
    assert centers.exact.shape == (plan.k, plan.d)


@pytest.mark.parametrize("k,d,n,sigma,settings", PLUS_RUNS)
def test_the_parties_run_fastlloyd_plus_as_its_program_does(
    k: int, d: int, n: int, sigma: str, settings: dict[str, Any]
) -> None:
    case = {"k": k, "d": d, "n": n, "rounds": 6, "sigma": sigma, "settings": settings, "seed": make_plus.SEED}
    plan, program = _plus_plan(case), make_plus.Run(case)
    assert plan.fraction_bits == program.q
    grid = 2.0**program.q
    rng = np.random.default_rng(k + d)
    middles = rng.uniform(-0.7, 0.7, (k, d))
    coordinates = np.rint(np.clip(middles[np.arange(n) % k] + rng.normal(0, 0.1, (n, d)), -1, 1) * grid).astype(int)
    noise = []
    for t in range(6):
        sums, counts = plan.lengths(t)
        scales = [plan.rounds[t].sum_scale] * sums + [plan.rounds[t].count_scale] * counts
        noise.append(np.rint(rng.normal(0, scales)).astype(np.int64))
    got = run(coordinates / grid, plan, noise=noise.__getitem__).first
    centers = first_centers(plan).grid.tolist()  # checked by `test_the_default_start`
    for t in range(6):
        noisy = [v + int(z) for v, z in zip(program.update(coordinates.tolist(), centers, t), noise[t], strict=True)]
        exact = program.advance(noisy, centers, t)
        centers = [[make_plus.nearest(x * program.grid) for x in row] for row in exact]
        assert _near(got.path[t + 1], exact)
    assert got.centers.grid.tolist() == centers
    assert _near(got.centers.noisy_counts, program.counts)


def _near(found: Any, expected: Any) -> bool:
    # What differs is the rounding of some hundred operations in float64.
    return bool(np.allclose(found, np.array(expected, dtype=np.float64), rtol=1e-10, atol=1e-12))


def _replaced(plan: Plan, **changes: Any) -> Plan:
    return dataclasses.replace(plan, **changes)


def _plus_plan(case: dict[str, Any]) -> Plan:
    """The plan with this noise multiplier: what a calibration gives differs in the last digits between versions."""
    d, rounds, names = case["d"], case["rounds"], tuple(f"x{h}" for h in range(case["d"]))
    public = parameters(
        case["n"],
        case["k"],
        protocol="fastlloyd-plus",
        rounds=rounds,
        seed=case["seed"],
        settings=case["settings"],
        delta=1e-6,
    )
    settings = settings_from("fastlloyd-plus", case["settings"])
    outline = Outline(public, settings, d=d, sigma=float(case["sigma"]), count=rounds)
    bits = outline.fraction_bits()
    return _replaced(
        make_plan(public, d=d, names=names),
        fraction_bits=bits,
        rounds=tuple(outline.round_plan(t, bits, 1.0) for t in range(rounds)),
        plus=outline.plus,
    )


class Drawn:
    """Gives out known bytes where a party draws secret ones."""

    def __init__(self, *values: str) -> None:
        self._values = [bytes.fromhex(value) for value in values]

    def bytes(self, count: int) -> bytes:
        assert len(self._values[0]) == count
        return self._values.pop(0)


def test_the_agreement_through_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    case, everybody = known("sealed"), clients(5)
    choose_messages(monkeypatch, case["messages"])
    identities = {me: certified(bytes.fromhex(case["signing_keys"][str(me.rank)])) for me in everybody}
    certificates = {me: identity.certificate_der for me, identity in identities.items()}
    run = bytes.fromhex(case["run"])
    lives: dict[PartyId, Any] = {}
    for me in everybody:
        sealing = Sealing(
            me=me,
            clients=everybody,
            run_id=bytes.fromhex(case["run_id"]),
            run=run,
            context=bytes.fromhex(case["context"]),
            credentials=Credentials(identities[me], certificates),
        )
        part = case["parts"].get(str(me.rank))
        drawn: Any = Drawn(*([part] if part else []), case["private_keys"][str(me.rank)])
        lives[me] = sealing.agree(drawn)
    credentials = Credentials(identities[everybody[0]], certificates)
    lives[SERVER] = relay_seed(everybody, run=run, credentials=credentials, resumed=False)
    seeds, said = play(lives)
    assert {seeds[me].hex() for me in everybody} == {case["seed"]}
    expected = {(kind.TYPE, 0, i): case[name] for kind, name in ((SealKeys, "seal_keys"),) for i in (1, 2, 3)}
    expected |= {(EqualityProof.TYPE, 0, i): case["alike_proof"] for i in range(1, 6)}
    expected |= {(SealedSeed.TYPE, 0, i): case["sealed_seed"][str(i)] for i in range(1, 6)}
    for kind, name in ((SealKey, "seal_key"), (SealedParts, "sealed_parts"), (EqualityTag, "alike_tag")):
        expected |= {(kind.TYPE, int(i), 0): body for i, body in case[name].items()}
    assert said == expected


def test_end_of_a_run_and_signed_record() -> None:
    case = known("record")
    seed, run_id, everybody = bytes.fromhex(case["seed"]), bytes.fromhex(case["run_id"]), clients(5)
    transcript = Transcript(bytes.fromhex(case["context"]))
    for t, body in enumerate(case["bodies"]):
        transcript.add(SERVER, Spoken(bytes.fromhex(body)), t)
    assert transcript.digest().hex() == case["agreed"]
    public = case["public"]
    shared = {**public, "rounds": [{"clients_included": public["included"][0]}]}
    record = SignedRecord(
        common=shared,
        releases=[],
        features=case["features"],
        noisy_sizes=case["noisy_sizes"],
        files=case["files"],
    )
    assert record.digest().hex() == case["compared"]
    openings = {i: derive_opening(seed, run_id, PartyId(int(i))).hex() for i in case["openings"]}
    assert openings == case["openings"]
    compare = functools.partial(compare_through_server, secret=seed, result=run_id + record.digest())
    lives: dict[PartyId, Any] = {me: compare(me, everybody, everybody, transcript) for me in everybody}
    lives[SERVER] = collect_tags(everybody, everybody, (), COMPARE_ROUND, THINGS)
    _, said = play(lives)
    expected = {(EqualityTag.TYPE, int(i), 0): body for i, body in case["alike_tag"].items()}
    assert said == expected | {(EqualityProof.TYPE, 0, i): case["alike_proof"] for i in range(1, 6)}
    opening = bytes.fromhex(case["openings"]["2"])
    statement = record.statement(bytes.fromhex(case["roster"]), transcript.digest(), "result", opening)
    assert statement.decode() == case["statement_of_2"]
    assert sign(certified(bytes.fromhex(case["key"])), statement).hex() == case["signature_of_2"]


@dataclasses.dataclass
class Spoken:
    """A reply of any content."""

    data: bytes
    TYPE: ClassVar[int] = 33
    payload_bytes: int = 0

    def body(self) -> bytes:
        return self.data

    @classmethod
    def read(cls, body: bytes, format: Any) -> Spoken:
        return cls(body)


def certified(raw: bytes) -> Identity:
    """An identity with a known key; only the key in its certificate matters here."""
    key = Ed25519PrivateKey.from_private_bytes(raw)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "site")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, datetime(2020, 1, 1), datetime(2120, 1, 1))
    return Identity("site", builder.sign(key, None).public_bytes(Encoding.DER), key)
