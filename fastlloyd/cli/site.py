"""`fastlloyd site`: stay as a client, and join the runs that people of this site have agreed to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fastlloyd.cli.options import Parser, ask

if TYPE_CHECKING:
    from fastlloyd.supervise.offers import SiteSettings


def main(argv: Sequence[str]) -> int:
    """Serve the folder, or handle one offer as a person asks.

    Raises
    ------
    ConfigError
        `site.toml` or an offer is wrong, or another process serves the same folder.
    """
    options = parser().parse_args(argv)
    from fastlloyd.supervise.offers import check_offer, offer_path, read_settings
    from fastlloyd.supervise.site import Site, decline, try_again

    os.umask(0o077)
    settings = read_settings(Path(options.folder))
    if options.agree is not None:
        from fastlloyd.dossier.consent import ask_consent

        offer = offer_path(settings, options.agree)
        check_offer(offer)
        output = settings.place("approvals", options.agree, ".json")
        output.parent.mkdir(mode=0o700, exist_ok=True)
        # What was approved before may be another version of the program, or of the offer.
        ask_consent(offer, settings.brings(offer), ask, output=output, d=options.d, yes=options.yes, replace=True)
        settings.place("declined", options.agree, ".json").unlink(missing_ok=True)
        return 0
    if options.decline is not None:
        offer_path(settings, options.decline)
        decline(settings, options.decline)
        return 0
    if options.again is not None:
        try_again(settings, options.again)
        return 0
    say = partial(print, flush=True)  # a journal reads it
    return Site(settings, say, partial(_ask, settings) if settings.ask else None).serve(once=options.once)


def _ask(settings: SiteSettings) -> bytes:
    """Ask the server which run it offers; key and roster are read each time, as `join` does."""
    from fastlloyd.net.tcp.address import parse_address
    from fastlloyd.net.tcp.proxy import find_proxy
    from fastlloyd.net.tcp.route import Route
    from fastlloyd.run.config import RunConfig
    from fastlloyd.run.own_rank import connection_keys, find_own_rank

    address = parse_address(settings.server, "server")
    place = find_own_rank(RunConfig(**settings.links), None)
    return Route(address, place.me.rank, connection_keys(place), find_proxy(address, os.environ)).ask()


def parser() -> Parser:
    """Return the parser of the flags."""
    made = Parser(
        prog="fastlloyd site",
        description="Stay, take run files from the folder DIR/offers, and join each run that a person of this site has "
        "agreed to; one ledger over all of them (docs/sites.md, 'A permanent service at a site').",
        epilog="Exit codes: 0 stopped, or done; 2 bad input or configuration.",
    )
    made.add_argument("folder", metavar="DIR", help="has site.toml; results, state and logs go there")
    what = made.add_mutually_exclusive_group()
    what.add_argument("--once", action="store_true", help="look once, join what is approved, and exit")
    what.add_argument("--agree", metavar="NAME", help="show the offer NAME to a person, and sign its approval")
    what.add_argument(
        "--decline", metavar="NAME", help="never join the offer NAME, approved or not, until somebody agrees to it"
    )
    what.add_argument("--again", metavar="NAME", help="join NAME again at the next look, although it has ended")
    made.add_argument("--yes", action="store_true", help="with --agree: do not ask; for scripts")
    made.add_argument("--d", type=int, help="with --agree: number of features, if neither bounds nor columns name them")
    return made
