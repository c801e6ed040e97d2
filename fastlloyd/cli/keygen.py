"""`fastlloyd keygen`: make a party's key and certificate."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from fastlloyd.crypto.link.identity import fingerprint, make_identity, save_identity
from fastlloyd.errors import EXIT_OK


def main(argv: Sequence[str] | None = None) -> int:
    """Write NAME.key and NAME.pem and print the fingerprint.

    Raises
    ------
    ConfigError
        The name does not do, or a file is there already.
    """
    options = _parser().parse_args(argv)
    identity = make_identity(options.name, options.rank)
    key_path, certificate_path = _paths(options.out, options.name)
    save_identity(identity, key_path, certificate_path, force=options.force)
    rank = "--role ROLE --rank RANK" if options.rank is None else ""
    add = f"fastlloyd roster add --roster ROSTER.toml --cert {quote(certificate_path.name)} {rank}".rstrip()
    print(f"key:          {key_path} (secret: keep it on this machine, copy it nowhere)")
    print(f"certificate:  {certificate_path} (public)")
    print(f"fingerprint:  {fingerprint(identity.certificate_der)}")
    print("next:         send the certificate to whoever keeps the roster, who runs")
    print(f"              {add}")
    print("              and compares the fingerprint with you by telephone")
    return EXIT_OK


def _paths(out: str, name: str) -> tuple[Path, Path]:
    """Read --out as a folder if it is one or ends in '/', else as the beginning of both file names."""
    folder = Path(out).is_dir() or out.endswith("/")
    prefix = str(Path(out) / name) if folder else out
    return Path(f"{prefix}.key"), Path(f"{prefix}.pem")


def _parser() -> argparse.ArgumentParser:
    """Describe the flags."""
    parser = argparse.ArgumentParser(prog="fastlloyd keygen", description="Make a party's key and certificate.")
    parser.add_argument("--name", required=True, help="name of the organisation or party, as it stands in the roster")
    parser.add_argument("--rank", type=int, help="0 for the server, 1 and up for clients, if known already")
    parser.add_argument(
        "--out", default=".", metavar="DIR_OR_PREFIX", help="an existing folder, or the file names' beginning"
    )
    parser.add_argument("--force", action="store_true", help="replace files that are there")
    return parser
