"""A rank that notes what it sends: every frame it hands to MPI, and every message before encryption."""

import json
import os
import sys

from fastlloyd.client import main
from fastlloyd.net.link.secure import SecureLinks
from fastlloyd.net.mpi.launcher import detect
from fastlloyd.net.mpi.transport import MpiTransport
from fastlloyd.wire.header import HEADER_BYTES, Header, PartyId

NOTES = os.open(f"{os.environ['RANK_NOTES']}/sent.{detect().rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
hand_over, seal = MpiTransport.send, SecureLinks.send


def note(**facts) -> None:
    os.write(NOTES, json.dumps(facts).encode() + b"\n")


def send_frame(self, peer: PartyId, frame: bytes) -> None:
    note(what="frame", peer=peer.rank, kind=frame[0], size=len(frame))
    hand_over(self, peer, frame)


def send_message(self, peer: PartyId, message: bytes, **options) -> None:
    header = Header.decode(bytes(message))
    note(what="message", peer=peer.rank, type=header.type, round=header.round, body=message[HEADER_BYTES:].hex())
    seal(self, peer, message, **options)


MpiTransport.send, SecureLinks.send = send_frame, send_message
sys.exit(main())
