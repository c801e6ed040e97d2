"""Signatures on what clients send each other through the server: who is at fault where one is missing.

The server checks every signature before it passes a statement on. So where it finds a wrong one its sender is at fault,
and a client that receives a wrong one knows that the server is dishonest. Without a roster nothing is signed, and
everything passes.

Source: docs/protocol.md, "Seed" and "Threshold masks: set-up".
"""

from __future__ import annotations

from fastlloyd.crypto.link.identity import Credentials
from fastlloyd.errors import SecurityError
from fastlloyd.wire.header import SERVER, PartyId


def check_sent(
    credentials: Credentials, party: PartyId, statement: bytes, signature: bytes, *, label: bytes, what: str
) -> None:
    """Refuse what a client sent without its signature; run by the server.

    Parameters
    ----------
    credentials : Credentials
    party : PartyId
        The sender.
    statement : bytes
    signature : bytes of length 64
    label : bytes
        Of this kind of statement.
    what : str
        Names it in the error, as the sender's: "its key of this run".

    Raises
    ------
    SecurityError
        Names the sender.
    """
    if not credentials.signed(party, statement, signature, label):
        raise SecurityError(
            f"{party} has not signed {what} with its roster key for this run: expected a signature under the run, the "
            "roster and the keys; compare its version and roster",
            rank=party.rank,
        )


def check_passed_on(
    credentials: Credentials, party: PartyId, statement: bytes, signature: bytes, *, label: bytes, what: str
) -> None:
    """Refuse what the server passed on without its author's signature; run by a client.

    Parameters
    ----------
    credentials, statement, signature, label
        As for `check_sent`.
    party : PartyId
        The author.
    what : str
        Names it in the error: "a key of client 2".

    Raises
    ------
    SecurityError
        Names the server.
    """
    if not credentials.signed(party, statement, signature, label):
        raise forged(party, what)


def forged(party: PartyId, what: str) -> SecurityError:
    """Return the error of a client that received from the server what its author has not signed."""
    return SecurityError(
        f"the server passed on {what} that {party} has not signed for this run: it was changed, swapped or replayed",
        rank=SERVER.rank,
    )
