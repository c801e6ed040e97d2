"""A site's own settings in its approval: a commitment to them travels, and what opens it stays at the site.

A person approves a run with this site's file, its rule for missing values and its budget. The approval may go to the
operator, so it must not show them, nor a digest that a reader could test guesses against: a rule for missing values has
three. So it holds a keyed digest, whose random key stays beside the approval in a file of mode 0600.

Source: docs/protocol.md, "Approval".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from fastlloyd.crypto.link.identity import write_atomically
from fastlloyd.data.database import names_query_file
from fastlloyd.errors import ConfigError, Reason, printable
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import KEY_BYTES, derive
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.config import DATA, OPTIONS, RunConfig
from fastlloyd.run.run_file import with_absolute_paths
from fastlloyd.wire.decode import Within, decode, load_json
from fastlloyd.wire.regular import read_regular_bytes
from fastlloyd.wire.values import canonical, differences, digest, list_differences

SUFFIX = ".own"
AGREE = "`fastlloyd agree`"
COVERED = (
    *(name for name, entry in OPTIONS.items() if entry.own and entry.group == DATA),
    *("budget", "budget_delta", "review"),
)
"""What a site brings to a run, how it is read, and how often it may be used."""
_MOST_BYTES = 1 << 20
_OWN_MODE = 0o600


@dataclass(frozen=True, slots=True)
class OwnPart:
    """The content of the file that stays: the key of the digest in hexadecimal digits, and the approved settings."""

    own: Literal[1]
    opening: Annotated[str, Within(64, 64)]
    values: Mapping[str, Any]

    def commitment(self) -> str:
        """Return what the approval has of it: 64 hexadecimal digits."""
        return derive(bytes.fromhex(self.opening), domains.OWN_SETTINGS, digest(self.values)).hex()


def own_values(config: RunConfig) -> dict[str, Any]:
    """Return this site's own settings as an approval covers them.

    Paths are absolute; of a file with a question to a database its content counts, too.

    Raises
    ------
    ConfigError
        The file of a question cannot be read.
    """
    absolute = with_absolute_paths(config)
    values = {name: getattr(absolute, name) for name in COVERED}
    values["data"] = None if absolute.data is None else printable(absolute.data)  # a name may be no text
    if absolute.query is not None and names_query_file(absolute.query):
        try:
            values["query_sha256"] = hashlib.sha256(read_regular_bytes(Path(absolute.query))).hexdigest()
        except OSError as error:
            raise ConfigError(f"--query {config.query}: cannot be read ({error.strerror}); check the path") from error
    plain: dict[str, Any] = json.loads(canonical(values))
    return plain


def own_path(approval: Path) -> Path:
    """Return the file that stays beside an approval."""
    return approval.with_name(f"{approval.name}{SUFFIX}")


def keep_own(approval: Path, config: RunConfig) -> str | None:
    """Write the file that stays beside an approval, and return the commitment; None where no records are named.

    Raises
    ------
    ConfigError
        As for `own_values`; or the file cannot be written.
    """
    if config.data is None:
        return None
    part = OwnPart(1, SecretRandom().bytes(KEY_BYTES).hex(), own_values(config))
    write_atomically(own_path(approval), json.dumps(asdict(part), indent=1).encode(), _OWN_MODE)
    return part.commitment()


def agree_words(approval: Path, otherwise: str = AGREE) -> str:
    """Return the command that makes this approval: that of the service in whose folder it is, or the other one."""
    folder = approval.parent.parent
    if approval.parent.name != "approvals" or not (folder / "site.toml").is_file():
        return otherwise
    return f"`fastlloyd site {folder} --agree {approval.stem}`"


def check_own(approval: Path, commitment: str, config: RunConfig) -> None:
    """Refuse a run with other settings of this site than a person approved.

    Raises
    ------
    ConfigError
        Names each that differs; or the file beside the approval is missing, or belongs to another one.
    """
    path = own_path(approval)
    try:
        part = decode(OwnPart, load_json(read_regular_bytes(path, _MOST_BYTES + 1), most_bytes=_MOST_BYTES), "it")
        opens = part.commitment() == commitment
    except OSError as error:
        raise ConfigError(
            f"--approval {approval}: it covers this site's own settings, and {path}, which was written with "
            f"it, cannot be read ({error.strerror}); put it back beside the approval, or approve anew with "
            f"{agree_words(approval)}",
            reason=Reason.NOT_APPROVED,
        ) from error
    except ValueError:
        opens = False
    if not opens:
        raise ConfigError(
            f"--approval {approval}: {path} belongs to another approval, or was changed; put the one back that was "
            f"written with it, or approve anew with {agree_words(approval)}",
            reason=Reason.NOT_APPROVED,
        )
    now = own_values(config)
    if canonical(part.values) != canonical(now):
        found = list_differences(differences(part.values, now))
        command = agree_words(approval, "`fastlloyd agree --site FILE`")
        raise ConfigError(
            f"--approval {approval}: this site's own settings are not those that a person approved: {found}; if the "
            f"new ones are right, approve them with {command}; otherwise set them as they were",
            reason=Reason.NOT_APPROVED,
        )
