"""A site's signed approval of everything public in a run, and the refusal of a run that is another one.

An approval is for a configuration, not for one run: it holds until a value changes. How often the same run may be
repeated is for the ledger's budget to say.

Source: docs/protocol.md, "Approval"; docs/data-protection.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from fastlloyd.crypto.link.identity import Identity
from fastlloyd.crypto.link.roster import Roster
from fastlloyd.crypto.link.signature import sign, verifies
from fastlloyd.errors import ConfigError, Reason
from fastlloyd.randomness import domains
from fastlloyd.wire.decode import Within, decode, load_json
from fastlloyd.wire.header import PartyId
from fastlloyd.wire.regular import read_regular_bytes
from fastlloyd.wire.values import canonical, differences, digest, list_differences

MOST_BYTES = 1 << 24
_AGAIN = "if the new values are right, approve them with `fastlloyd agree`; otherwise start the run that was approved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """What one site signs.

    Attributes
    ----------
    approval : int
        Version of this format, 1.
    rank : int
        Of the party that signs.
    name : str
        Its name in the roster.
    approved_at : str
        UTC, as ISO 8601, by the clock of the site; for people, nothing follows from it.
    digest : str
        SHA-256 of the canonical values, hexadecimal: short enough to be compared by telephone.
    values : mapping
        As `public_values` returns them.
    signature : str
        Ed25519 under the site's key in the roster, over all other fields; hexadecimal.
    """

    approval: Literal[1] = 1
    rank: Annotated[int, Within(0, 2**16)]
    name: Annotated[str, Within(1, 64)]
    approved_at: Annotated[str, Within(1, 40)]
    digest: Annotated[str, Within(64, 64)]
    values: Mapping[str, Any]
    signature: Annotated[str, Within(128, 128)]

    @property
    def party(self) -> PartyId:
        """Who signs."""
        return PartyId(self.rank)

    def statement(self) -> bytes:
        """Return the bytes that are signed: all fields but the signature."""
        content = self._content()
        del content["signature"]
        return canonical(content)

    def text(self) -> str:
        """Return the file's text: JSON for people, with sorted keys."""
        return json.dumps(self._content(), sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False) + "\n"

    def _content(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def sign_approval(values: Mapping[str, Any], identity: Identity, roster: Roster, *, approved_at: str) -> Approval:
    """Sign public values as the owner of a key.

    Raises
    ------
    ConfigError
        The key belongs to nobody in the roster.
    """
    owner = roster.owner(identity.key)
    if owner is None:
        raise ConfigError("--key: this key belongs to nobody in the roster; give this party's own key")
    approval = Approval(
        rank=owner.rank,
        name=owner.name,
        approved_at=approved_at,
        digest=digest(values).hex(),
        values=values,
        signature="",
    )
    return replace(approval, signature=sign(identity, approval.statement(), domains.APPROVAL).hex())


def read_approval(path: Path, roster: Roster) -> Approval:
    """Read an approval that anybody may have written, and check who signed it.

    Raises
    ------
    ConfigError
        The file cannot be read, is no approval, or is not signed by the party of the roster that it names.
    """
    try:
        content = read_regular_bytes(path, MOST_BYTES + 1)
        approval = decode(Approval, load_json(content, most_bytes=MOST_BYTES), "")
        if approval.text().encode() != content:
            raise ValueError("expected the text as `fastlloyd agree` writes it, got the same values in another form")
        if digest(approval.values).hex() != approval.digest:
            raise ValueError("its digest is not that of its values")
    except OSError as error:
        raise ConfigError(f"cannot read the approval {path}: {error.strerror}; check path and rights") from error
    except ValueError as error:
        raise ConfigError(
            f"{path} is no approval of `fastlloyd agree`: {error}; ask its client for the file once more"
        ) from error
    entry = next((entry for entry in roster.entries if entry.party == approval.party), None)
    if entry is None or entry.name != approval.name:
        raise ConfigError(
            f"{path} is the approval of {approval.name!r} ({approval.party}), who is not in this roster; give the "
            "roster of that approval, or approve anew with `fastlloyd agree`"
        )
    if not verifies(entry.certificate_der, approval.statement(), _bytes(approval.signature), domains.APPROVAL):
        raise ConfigError(
            f"{path} is not signed with the key that the roster has for {approval.name!r} ({approval.party}): it was "
            "changed, signed by somebody else, or the key was replaced since; approve anew with `fastlloyd agree`"
        )
    return approval


def check_approval(approval: Approval, values: Mapping[str, Any], source: str) -> None:
    """Refuse a run with other public values than were approved.

    Parameters
    ----------
    approval : Approval
    values : mapping
        Of the run that is about to start.
    source : str
        What the error begins with: a flag, a file.

    Raises
    ------
    ConfigError
        Names each value that differs, as approved and as it is.
    """
    if canonical(approval.values) != canonical(values):
        found = differences(approval.values, values) or ["the same values under other names"]
        raise ConfigError(
            f"{source}: this is not the run that {approval.party} approved: {list_differences(found)}; {_AGAIN}",
            reason=Reason.NOT_APPROVED,
        )


def read_approvals(folder: Path, roster: Roster) -> dict[Path, Approval]:
    """Read the approvals of all clients from a folder's `*.json` files.

    Raises
    ------
    ConfigError
        The folder cannot be read, a file in it is no approval of a client of this roster, or a client has none or two.
    """
    clients = [entry for entry in roster.entries if not entry.party.is_server]
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    except OSError as error:
        raise ConfigError(
            f"--require-approvals {folder}: cannot be read ({error.strerror}); check path and rights"
        ) from error
    found: dict[Path, Approval] = {}
    for path in paths:
        approval = read_approval(path, roster)
        twice = next((other for other, given in found.items() if given.party == approval.party), None)
        if twice is not None:
            raise ConfigError(f"{twice} and {path} are both approvals of {approval.party}; keep the one that holds")
        found[path] = approval
    given = {approval.party for approval in found.values()}
    missing = [entry for entry in clients if entry.party not in given]
    if missing:
        names = ", ".join(f"{entry.name!r} ({entry.party})" for entry in missing)
        raise ConfigError(
            f"--require-approvals {folder}: no approval of {names}; each client makes one with `fastlloyd agree` and "
            "sends it here"
        )
    return found


def _bytes(signature: str) -> bytes:
    """Decode hexadecimal digits; empty if these are none."""
    try:
        return bytes.fromhex(signature)
    except ValueError:
        return b""
