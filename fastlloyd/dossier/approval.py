"""A site's signed approval of everything public in a run, and the refusal of any other run.

An approval is for a configuration and its claim, not for one run: it holds until a value changes or until it expires.
The ledger's budget limits how often the same run may be repeated.

Source: docs/protocol.md, "Approval"; docs/data-protection.md.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Annotated, Any, Literal

from fastlloyd.crypto.link.identity import Identity, sign, verifies
from fastlloyd.crypto.link.roster import Roster
from fastlloyd.dossier.own_part import AGREE, agree_words, check_own
from fastlloyd.errors import ConfigError, Reason
from fastlloyd.party.plain_plan import ACCOUNTING_SLACK
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.ledger import covers
from fastlloyd.privacy.release import Release
from fastlloyd.randomness import domains
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import PublicInputs, public_values
from fastlloyd.run.outcome import Claim
from fastlloyd.run.own_rank import OwnRank
from fastlloyd.wire.decode import Within, decode, load_json
from fastlloyd.wire.header import PartyId
from fastlloyd.wire.regular import read_regular_bytes
from fastlloyd.wire.values import canonical, differences, digest, list_differences

MOST_BYTES = 1 << 24
_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A signed approval.

    Attributes
    ----------
    approval : int
        Version of this format, 2.
    rank : int
        The party that signs.
    name : str
        Its name in the roster.
    approved_at : str
        UTC, as ISO 8601, by the clock of the site; only for people.
    expires : str or None
        Its end, as ISO 8601: a day, to its end in UTC, or a time with its zone; None: without end.
    claim : mapping or None
        The claim that the run must make, as in `Claim.values`; only epsilon and delta if the rest was not known, None
        if nothing was.
    digest : str
        SHA-256 of the canonical values, hexadecimal: short enough to be compared by telephone.
    values : mapping
        As `public_values` returns them.
    own : str or None
        Commitment to the site's own settings (`own_part`); None and absent from the file if it names no records.
    signature : str
        Ed25519 under the site's key in the roster, over all other fields; hexadecimal.
    """

    approval: Literal[2] = 2
    rank: Annotated[int, Within(0, 2**16)]
    name: Annotated[str, Within(1, 64)]
    approved_at: Annotated[str, Within(1, 40)]
    expires: Annotated[str, Within(1, 40)] | None = None
    claim: Mapping[str, Any] | None = None
    digest: Annotated[str, Within(64, 64)]
    values: Mapping[str, Any]
    own: Annotated[str, Within(64, 64)] | None = None
    signature: Annotated[str, Within(128, 128)]

    @property
    def party(self) -> PartyId:
        """The party that signs."""
        return PartyId(self.rank)

    def statement(self) -> bytes:
        """Return the bytes that are signed: all fields except the signature."""
        content = self._content()
        del content["signature"]
        return canonical(content)

    def text(self) -> str:
        """Return the file's text: JSON for people, with sorted keys."""
        return json.dumps(self._content(), sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False) + "\n"

    def _content(self) -> dict[str, Any]:
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in content.items() if name != "own" or value is not None}


def read_expiry(text: str) -> datetime:
    """Return the time at which an approval ends.

    Parameters
    ----------
    text : str
        A day, such as 2027-01-31, which counts to its end in UTC; or a time with its zone, such as
        2027-01-31T12:00:00+01:00.

    Raises
    ------
    ValueError
        It is neither.
    """
    if _DAY.fullmatch(text):
        return datetime.combine(date.fromisoformat(text), time.max, UTC)
    if not _TIME.fullmatch(text):
        raise ValueError(
            f"expected a day, such as 2027-01-31, or a time with its zone, such as 2027-01-31T12:00:00Z, got {text!r}"
        )
    return datetime.fromisoformat(text)


def sign_approval(
    values: Mapping[str, Any],
    identity: Identity,
    roster: Roster,
    *,
    approved_at: str,
    claim: Mapping[str, Any] | None = None,
    expires: str | None = None,
    own: str | None = None,
) -> Approval:
    """Sign the public values and the claim of a run, as the owner of a key.

    Raises
    ------
    ConfigError
        The key is not in the roster.
    """
    owner = roster.owner(identity.key)
    if owner is None:
        raise ConfigError("--key: this key is not in the roster; give this party's own key")
    approval = Approval(
        rank=owner.rank,
        name=owner.name,
        approved_at=approved_at,
        claim=claim,
        expires=expires,
        digest=digest(values).hex(),
        values=values,
        own=own,
        signature="",
    )
    return replace(approval, signature=sign(identity, approval.statement(), domains.APPROVAL).hex())


def read_approval(path: Path, roster: Roster) -> Approval:
    """Read an untrusted approval, and check its signature.

    Raises
    ------
    ConfigError
        The file cannot be read, is not an approval, or is not signed by the party of the roster that it names.
    """
    try:
        content = read_regular_bytes(path, MOST_BYTES + 1)
        approval = decode(Approval, load_json(content, most_bytes=MOST_BYTES), "")
        if approval.text().encode() != content:
            raise ValueError("expected the format of `fastlloyd agree`, got the same values in another form")
        if digest(approval.values).hex() != approval.digest:
            raise ValueError("its digest is not that of its values")
        if approval.expires is not None:
            read_expiry(approval.expires)
    except OSError as error:
        raise ConfigError(f"cannot read the approval {path}: {error.strerror}; check path and rights") from error
    except ValueError as error:
        raise ConfigError(
            f"{path} is not an approval of `fastlloyd agree`: {error}; ask its client for the file once more"
        ) from error
    entry = next((entry for entry in roster.entries if entry.party == approval.party), None)
    if entry is None or entry.name != approval.name:
        raise ConfigError(
            f"{path} is the approval of {approval.name!r} ({approval.party}), which is not in this roster; give the "
            f"roster of that approval, or approve anew with {agree_words(path)}"
        )
    if not verifies(entry.certificate_der, approval.statement(), _bytes(approval.signature), domains.APPROVAL):
        raise ConfigError(
            f"{path} is not signed with the key that the roster has for {approval.name!r} ({approval.party}): it was "
            f"changed, signed with another key, or the key was replaced since; approve anew with {agree_words(path)}"
        )
    return approval


def check_approval(approval: Approval, values: Mapping[str, Any], source: str, agree: str = AGREE) -> None:
    """Refuse a run whose public values differ from the approved ones.

    Parameters
    ----------
    approval : Approval
    values : mapping
        Of the run that is about to start.
    source : str
        Beginning of the error: a flag, a file.
    agree : str
        The command that approves other values.

    Raises
    ------
    ConfigError
        Names each value that differs, as approved and as it is now.
    """
    if canonical(approval.values) != canonical(values):
        found = differences(approval.values, values)
        raise ConfigError(
            f"{source}: this is not the run that {approval.party} approved: {list_differences(found)}; if the "
            f"new values are right, approve them with {agree}; otherwise start the run that was approved",
            reason=Reason.NOT_APPROVED,
        )


def _check_claim(approval: Approval, claim: Claim | None, planned: Sequence[Release], source: str, agree: str) -> None:
    approved = approval.claim or {}
    if claim is not None:
        now = {name: value for name, value in claim.values().items() if name in approved}
        if canonical(approved) != canonical(now):
            found = list_differences(differences({"claim": approved}, {"claim": now}))
            raise ConfigError(
                f"{source}: this run would not claim what {approval.party} approved: {found}; nothing of this "
                f"site was released. If the new values are right, approve them with {agree}; otherwise start the run "
                "that was approved",
                reason=Reason.NOT_APPROVED,
            )
    epsilon, delta = approved.get("epsilon"), approved.get("delta", 0.0)
    if isinstance(epsilon, int | float) and isinstance(delta, int | float):
        protected = approved.get("neighbours")
        covered = protected is None or all(covers(release.neighbours, str(protected)) for release in planned)
        total = spent(planned, float(delta)) if covered else math.inf
        if total > float(epsilon) * (1.0 + ACCOUNTING_SLACK):
            raise ConfigError(
                f"{source}: {approval.party} approved epsilon {epsilon:g} at delta {delta:.3g}, expected at most that, "
                f"and the plan spends {total:.6g}; nothing of this site was released. Ask for the approved run",
                reason=Reason.NOT_APPROVED,
            )


class Approved:
    """The approvals that a run must comply with, each with the beginning of its errors.

    Parameters
    ----------
    approvals : mapping from str to Approval
    agree : str
        The command that makes them.
    """

    def __init__(self, approvals: Mapping[str, Approval], agree: str = AGREE) -> None:
        self._approvals = dict(approvals)
        self._agree = agree

    def check_public(self, config: RunConfig, inputs: PublicInputs, roster: Roster | None) -> None:
        """Refuse a run whose public values differ from the approved ones, or after the end of an approval.

        Parameters
        ----------
        config : RunConfig
        inputs : PublicInputs
        roster : Roster or None
            The run's, as it was read: the file may have changed since.

        Raises
        ------
        ConfigError
            Names the value, or the end of the approval.
        """
        values = public_values(config, inputs, roster)
        for source, approval in self._approvals.items():
            if approval.expires is not None and datetime.now(UTC) >= read_expiry(approval.expires):
                raise ConfigError(
                    f"{source}: the approval of {approval.party} has ended, it held until {approval.expires}; approve "
                    f"anew with {self._agree}",
                    reason=Reason.NOT_APPROVED,
                )
            check_approval(approval, values, source, self._agree)

    def check_claim(self, claim: Claim | None, planned: Sequence[Release]) -> None:
        """Refuse a plan that violates an approval, before anything is released.

        Parameters
        ----------
        claim : Claim or None
            The claim of the run; None if its protocol does not provide it.
        planned : sequence of Release
            All releases of the run.

        Raises
        ------
        ConfigError
            The claim differs, or the releases spend more than it states; nothing was released.
        """
        for source, approval in self._approvals.items():
            _check_claim(approval, claim, planned, source, self._agree)


def read_approvals(folder: Path, roster: Roster) -> dict[Path, Approval]:
    """Read the approvals of all clients from a folder's `*.json` files.

    Raises
    ------
    ConfigError
        The folder cannot be read, a file in it is not an approval of a client of this roster, or a client has none or
        two.
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
    """Decode hexadecimal digits; empty if they are invalid."""
    try:
        return bytes.fromhex(signature)
    except ValueError:
        return b""


def approved_by_all(folder: Path, config: RunConfig) -> Approved:
    """Return the approvals of all clients, for the checks of a run; their signatures are checked at once."""
    if config.roster is None:
        raise ConfigError("--require-approvals: needs --roster and --key, which determine who may approve")
    roster = Roster.load(Path(config.roster))
    return Approved({str(path): approval for path, approval in read_approvals(folder, roster).items()})


def approved(path: Path, config: RunConfig, place: OwnRank) -> Approved:
    """Return this client's approval, for the checks of a run; its signature and own settings are checked at once."""
    if config.roster is None:
        raise ConfigError("--approval: needs --roster and --key, whose owner has approved")
    roster = Roster.load(Path(config.roster))
    approval = read_approval(path, roster)
    if approval.party != place.me:
        raise ConfigError(
            f"--approval {path}: it is the approval of {approval.name!r} ({approval.party}), and this is {place.me}; "
            "give this party's own"
        )
    if approval.own is not None:
        check_own(path, approval.own, config)
    return Approved({f"--approval {path}": approval}, agree_words(path))
