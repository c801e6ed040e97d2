"""`fastlloyd keygen`: make a party's key and certificate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from fastlloyd.cli.options import Parser
from fastlloyd.crypto.link.identity import ask_passphrase, fingerprint, make_identity, read_passphrase, save_identity
from fastlloyd.errors import EXIT_OK, ConfigError

_FOLDER_MODE = 0o700


def main(argv: Sequence[str] | None = None) -> int:
    """Write NAME.key and NAME.pem and print the fingerprint.

    Raises
    ------
    ConfigError
        The name is not allowed, a file exists already, the folder cannot be made, or there is no passphrase to use.
    """
    options = parser().parse_args(argv)
    identity = make_identity(options.name, options.rank)
    passphrase = None if options.passphrase_file is None else read_passphrase(Path(options.passphrase_file))
    if options.passphrase:
        nobody = "--passphrase: nobody to ask, standard input is no terminal; give --passphrase-file FILE"
        passphrase = ask_passphrase("Passphrase of the new key: ", nobody)
        if ask_passphrase("The same again: ", nobody) != passphrase:
            raise ConfigError("--passphrase: expected the same passphrase twice, got two; start again")
    prefix = options.prefix
    if prefix is None:
        folder = Path(options.out)
        try:
            folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)  # a new one is readable by its owner alone
        except OSError as error:
            raise ConfigError(
                f"--out {options.out}: cannot be made a folder ({error.strerror}); name another one"
            ) from error
        prefix = str(folder / options.name)
    key_path, certificate_path = Path(f"{prefix}.key"), Path(f"{prefix}.pem")
    save_identity(identity, key_path, certificate_path, force=options.force, passphrase=passphrase)
    rank = "--role ROLE --rank RANK" if options.rank is None else ""
    add = f"fastlloyd roster add --roster ROSTER.toml --cert {quote(certificate_path.name)} {rank}".rstrip()
    print(f"key:          {key_path} (secret: keep it on this machine, copy it nowhere)")
    print(f"certificate:  {certificate_path} (public)")
    print(f"fingerprint:  {fingerprint(identity.certificate_der)}")
    print("next:         send the certificate to the keeper of the roster, who runs")
    print(f"              {add}")
    print("              and compares the fingerprint with you by telephone")
    return EXIT_OK


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(prog="fastlloyd keygen", description="Make a party's key and certificate.")
    parser.add_argument("--name", required=True, help="name of the organisation or party, as in the roster")
    parser.add_argument("--rank", type=int, help="0 for the server, 1 and up for clients, if known already")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", default=".", metavar="DIR", help="folder for NAME.key and NAME.pem, made if missing")
    where.add_argument("--prefix", metavar="PATH", help="instead of --out: start of both file names")
    locked = parser.add_mutually_exclusive_group()
    locked.add_argument("--passphrase", action="store_true", help="encrypt the key; asks twice on the terminal")
    locked.add_argument("--passphrase-file", metavar="FILE", help="encrypt the key with the first line of this file")
    parser.add_argument("--force", action="store_true", help="replace existing files")
    return parser
