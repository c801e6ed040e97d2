"""The signed record of a run: what each party signs, and how anybody checks it later.

Each party signs a statement: run, roster, the digest that all agreed on, and its part of the report::

    public       protocol, run, parties, parameters, releases, who was included in each round
    centroids    the same, feature names, and the SHA-256 of each result file that is the same at all
    result       the same, and the noisy sizes

The statement holds a commitment to the result: signatures pass through the server, and a digest would let it test
guesses of the records by recomputing the result with the noise that it drew. The opening is in the report, beside the
result. The writer of the report also signs all of it. Without a roster nothing is signed, because nobody owns the keys.

Source: docs/protocol.md, "Signed record"; docs/report.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from fastlloyd.crypto.commitment import commit
from fastlloyd.crypto.link.identity import Identity, sign, verifies
from fastlloyd.crypto.link.roster import Roster
from fastlloyd.errors import ConfigError, InternalError
from fastlloyd.randomness import domains
from fastlloyd.wire.header import PartyId
from fastlloyd.wire.regular import read_regular_bytes

SIGNED_ELSE = "signed something else than this party saw"
# First schema of the report whose results are signed as commitments.
_COMMITS = 5
_ANEW = "ask a party of the run for the folder as the run wrote it"
Covers = Literal["public", "centroids", "result"]
COVERS: tuple[Covers, ...] = get_args(Covers)
# These fields of a release differ between ledgers.
_OWN_FIELDS = ("data", "seen_by", "run")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRecord:
    """What a party signs of its run.

    Attributes
    ----------
    common : mapping
        Entries that are the same for all parties, and others.
    releases : sequence of dict
        As `Release.to_dict` gives them.
    features, noisy_sizes : sequence or None
    left_out : int or None
        How many clusters are smaller than the run publishes; None if it publishes all.
    files : mapping from file name to text
        Result files that are the same at all parties with the result.
    covers : {'public', 'centroids', 'result'}
        What this party has of the result.
    """

    common: Mapping[str, Any]
    releases: Sequence[Mapping[str, Any]]
    features: Sequence[str] = ()
    noisy_sizes: Sequence[float] | None = None
    left_out: int | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    covers: Covers = "result"

    def statement(self, roster: bytes, agreed: bytes, covers: Covers, opening: bytes | None) -> bytes:
        """Return the bytes that a party signs, given its part of the result and the opening of its commitment."""
        public = _public(self.common, self.releases)
        result = self._result(covers)
        if result is not None and opening is None:
            raise InternalError("a result was to be signed without an opening")
        return _statement(self.common["run"], roster, agreed, public, _committed(result, opening or b""))

    def digest(self) -> bytes:
        """Return a digest, 32 bytes, of everything that this party would sign; parties with the result compare it.

        Privacy
        -------
        Its reader can test guesses of the result. So it is for parties that have the result, or the input of a hash
        whose key the reader does not know.
        """
        public = _public(self.common, self.releases)
        return bytes.fromhex(_digest([public, self._result(self.covers)]))

    def _result(self, covers: Covers) -> dict[str, Any] | None:
        return _result(self.features, self.noisy_sizes, self.left_out, file_digests(self.files), covers)


def file_digests(files: Mapping[str, str]) -> dict[str, str]:
    """Return the SHA-256 of each text, in hexadecimal digits."""
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(files.items())}


def sign_report(report: Mapping[str, Any], identity: Identity) -> str:
    """Sign a whole report, its writer's signature left empty; return hexadecimal digits."""
    return sign(identity, _whole(report)).hex()


def verify_signatures(folder: Path, report: Mapping[str, Any], roster: Roster) -> str:
    """Check all signatures of a report against a roster.

    Parameters
    ----------
    folder : Path
        Of the run; its result files are also compared.
    report : dict
        A valid report.json.
    roster : Roster
        The one of that run.

    Returns
    -------
    str
        A sentence that names the signers.

    Raises
    ------
    ConfigError
        The report is unsigned, was signed under another roster, or does not say what was signed; or a party of the run
        signed something else.
    """
    signed = report["signatures"]
    if signed is None:
        raise ConfigError(
            "report.json is unsigned; if the run had a roster, the signatures were removed: "
            f"{_ANEW}; only for a run without one, leave --roster out"
        )
    if signed["roster"] != roster.digest().hex():
        raise ConfigError(
            f"report.json was signed under the roster with digest {signed['roster'][:16]}.., this one has "
            f"{roster.digest().hex()[:16]}..; give the roster of that run"
        )
    _check_files(folder, signed["files"])
    certificates = roster.certificates()
    writer = PartyId(signed["writer"]["rank"])
    label = domains.SIGNED_RECORD if report["schema"] >= _COMMITS else domains.SIGNED_RECORD_1
    if writer not in certificates or not verifies(
        certificates[writer], _whole(report), _bytes(signed["writer"]), label
    ):
        raise ConfigError(
            f"report.json differs from what {writer}, who wrote it, signed: it was changed afterwards; {_ANEW}"
        )
    signers: dict[PartyId, str] = {}
    for entry in signed["parties"]:
        party = PartyId(entry["rank"])
        if entry["signature"] is None:
            if entry["problem"] == SIGNED_ELSE:
                raise ConfigError(
                    f"{party} signed something else than {writer}, who wrote report.json, saw: expected the same from "
                    "all; compare the folders of the two, and their versions of fastlloyd, and trust neither result "
                    "until you know why"
                )
            continue
        statement = _from_report(report, entry)
        if party not in certificates or not verifies(certificates[party], statement, _bytes(entry), label):
            raise ConfigError(
                f"report.json does not say what {party} signed: it was changed, or is another run's; {_ANEW}"
            )
        signers[party] = f"{roster.name(party)} ({party})"
    missing = [str(party) for party in sorted(certificates) if party not in signers]
    text = f"signed by {', '.join(signers.values())} under the roster with digest {signed['roster'][:16]}.."
    return text + (f"; not by {', '.join(missing)}" if missing else "")


def _from_report(report: Mapping[str, Any], entry: Mapping[str, Any]) -> bytes:
    """Return the statement that a party must have signed if the report is what it saw."""
    signed, result = report["signatures"], report["result"]
    public = _public(report, report["privacy"]["releases"])
    sizes, left_out = result["noisy_sizes"], result.get("left_out")
    own = _result(result["features"], sizes, left_out, signed["files"], entry["covers"])
    if report["schema"] < _COMMITS:
        shown = None if own is None else _digest(own)
    else:
        shown = _committed(own, bytes.fromhex(entry["opening"] or ""))
    return _statement(report["run"], bytes.fromhex(signed["roster"]), bytes.fromhex(signed["agreed"]), public, shown)


def _committed(result: Any, opening: bytes) -> str | None:
    """Return the commitment to a result in hexadecimal digits; None for a party without one."""
    return None if result is None else commit(bytes.fromhex(_digest(result)), opening).hex()


def _statement(run: str, roster: bytes, agreed: bytes, public: Any, result: str | None) -> bytes:
    values = {"run": run, "roster": roster.hex(), "agreed": agreed.hex(), "public": _digest(public), "result": result}
    return _canonical(values)


def _public(values: Mapping[str, Any], releases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    kept = [{name: value for name, value in entry.items() if name not in _OWN_FIELDS} for entry in releases]
    version = {"results_version": values["results_version"]} if "results_version" in values else {}  # from schema 5 on
    silent = [entry["clients_silent"] for entry in values["rounds"] if "clients_silent" in entry]  # threshold masks
    return {
        "protocol": values["protocol"],
        **version,
        "run": values["run"],
        "parties": values["parties"],
        "parameters": values["parameters"],
        "releases": sorted(kept, key=lambda entry: (entry["round"], entry["name"])),
        "included": [entry["clients_included"] for entry in values["rounds"]],
        **({"silent": silent} if silent else {}),
    }


def _result(
    features: Sequence[str],
    sizes: Sequence[float] | None,
    left_out: int | None,
    files: Mapping[str, str],
    covers: Covers,
) -> dict[str, Any] | None:
    if covers == "public":
        return None
    found: dict[str, Any] = {"features": list(features), "files": dict(files)}
    if left_out is not None:  # of runs with --min-size
        found["left_out"] = left_out
    return found if covers == "centroids" else {**found, "noisy_sizes": None if sizes is None else list(sizes)}


def _whole(report: Mapping[str, Any]) -> bytes:
    """Return the bytes that the writer signs: the report with its own signature left out."""
    signed = dict(report["signatures"])
    signed["writer"] = {"rank": signed["writer"]["rank"], "signature": None}
    return _canonical({**report, "signatures": signed})


def _check_files(folder: Path, digests: Mapping[str, str]) -> None:
    """Compare the result files with what was signed."""
    for name, digest in digests.items():
        path = folder / Path(name).name
        try:
            content = read_regular_bytes(path)
        except OSError as error:
            raise ConfigError(f"{path} was signed but cannot be read: {error.strerror}; {_ANEW}") from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise ConfigError(f"{path} is not what the parties signed: it was changed after the run; {_ANEW}")


def _bytes(entry: Mapping[str, Any]) -> bytes:
    return bytes.fromhex(entry["signature"] or "")


def _digest(values: Any) -> str:
    return hashlib.sha256(_canonical(values)).hexdigest()


def _canonical(values: Any) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False, default=list).encode()
