"""TLS links: who gets in, and what happens to records on the way."""

from __future__ import annotations

import contextlib
import os
import ssl
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlloyd.crypto.link.identity import Identity, fingerprint, make_identity
from fastlloyd.crypto.link.tls import TlsLink, agreed_group
from fastlloyd.errors import PeerGone, RangeError, SecurityError
from fastlloyd.wire.header import PartyId
from tests.unit.crypto.link.certificates import forge, subject_of

LOW, HIGH = PartyId(1), PartyId(2)
SERVER_SIDE, CLIENT_SIDE = make_identity("low", 1), make_identity("high", 2)


def pair(*, server=SERVER_SIDE, client=CLIENT_SIDE, server_pins=None, client_pins=None, **options):
    """The two ends of a link: the TLS server (client 1) and the TLS client (client 2)."""
    return (
        TlsLink(server, (server_pins or client).certificate_der, server_side=True, peer=HIGH, **options),
        TlsLink(client, (client_pins or server).certificate_der, server_side=False, peer=LOW, **options),
    )


def shake(low: TlsLink, high: TlsLink) -> list[SecurityError]:
    """Carry handshake bytes to and fro; give the refusals, the first end's first."""
    refusals: dict[TlsLink, SecurityError] = {}
    low.start()
    high.start()
    for _ in range(6):
        for source, target in ((high, low), (low, high)):
            data = source.outgoing()
            if data and target not in refusals:
                try:
                    target.feed(data)
                    target.open()
                except SecurityError as error:
                    refusals[target] = error
    return [refusals[end] for end in (low, high) if end in refusals]


@pytest.fixture
def linked():
    low, high = pair(max_message=1 << 20)
    assert shake(low, high) == []
    assert low.established and high.established
    return low, high


OF_OPENSSL_4 = bytes.fromhex(
    "16030304ba020004b603033875cf5b3211c51e0e0ce6db07088f2084895222cd541677791b958f59038f6720d7f6aa665e7f738282565be7e606"
    "77cbc13c986d598e37a478f34ae5cd34eb78130200046e002b000203040033046411ec0460f9c4a268c943417af4c048c492022e8ac39e88f9b6"
)
"""The beginning of what a TLS server of OpenSSL 4.0 sends one of its kind, which agree on X25519MLKEM768."""


def test_both_ends_know_in_which_group_their_keys_were_agreed(linked):
    low, high = linked
    # OpenSSL prefers it from 3.5 on, and nothing here takes it away.
    expected = "X25519MLKEM768" if ssl.OPENSSL_VERSION_INFO >= (3, 5) else "X25519"
    assert low.group == high.group == expected
    fresh, _ = pair()
    assert fresh.group is None


def test_the_group_is_read_from_the_bytes_of_another_implementation():
    at = OF_OPENSSL_4.index(bytes.fromhex("11ec"))
    assert agreed_group(OF_OPENSSL_4) == "X25519MLKEM768"
    for group, name in ((0x1D, "X25519"), (0x17, "P-256"), (0x4000, "group 16384")):
        assert agreed_group(OF_OPENSSL_4[:at] + group.to_bytes(2, "big") + OF_OPENSSL_4[at + 2 :]) == name


@given(st.integers(0, len(OF_OPENSSL_4)), st.binary(max_size=20))
def test_bytes_that_name_no_group_give_none(length, more):
    """Cut, or not a ServerHello at all; nothing is raised."""
    if length < OF_OPENSSL_4.index(bytes.fromhex("11ec")) + 2:
        assert agreed_group(OF_OPENSSL_4[:length]) is None
    agreed_group(OF_OPENSSL_4[:length] + more)
    assert agreed_group(b"\x15" + OF_OPENSSL_4[1:]) is None


def test_messages_of_all_sizes_arrive_whole_and_in_order(linked):
    low, high = linked
    sizes = (0, 1, 4, 40, 16379, 16380, 16381, 16384, 32768, 100_000, 1 << 20)
    messages = [os.urandom(size) for size in sizes]
    for sender, receiver in ((low, high), (high, low)):
        for message in messages:
            receiver.feed(sender.seal(message))
            assert receiver.open() == [message] and not receiver.partial
        for message in messages:
            receiver.feed(sender.seal(bytearray(message)))
        assert receiver.open() == messages


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=6), st.integers(1, 50))
def test_any_cutting_of_the_stream_gives_the_same_messages(messages, step):
    low, high = ESTABLISHED
    stream = b"".join(high.seal(memoryview(message)) for message in messages)
    received = []
    for start in range(0, len(stream), step):
        low.feed(stream[start : start + step])
        received += low.open()
    assert received == messages


ESTABLISHED = pair()
assert shake(*ESTABLISHED) == []


def test_overhead_is_26_bytes_for_a_small_message_and_nothing_comes_unasked(linked):
    low, high = linked
    assert len(low.seal(bytes(40))) == 40 + 4 + 22
    assert low.outgoing() == b"" and high.outgoing() == b""
    assert low.open() == []


def test_records_hide_the_message(linked):
    low, _ = linked
    message = os.urandom(64)
    assert message not in low.seal(message)


def named(errors: list[SecurityError], *ranks: int) -> None:
    assert [error.rank for error in errors] == list(ranks)


def test_wrong_key_is_refused_and_both_ends_raise():
    low, high = pair(client=make_identity("high", 2), server_pins=CLIENT_SIDE)
    errors = shake(low, high)
    named(errors, 2, 1)
    assert "certificate that client 2 showed, in place of the one" in str(errors[0])
    assert fingerprint(CLIENT_SIDE.certificate_der) in str(errors[0])
    assert "confirms a new fingerprint by telephone" in str(errors[0]) and "roster add" in str(errors[0])
    assert "client 1 refused this party's certificate" in str(errors[1])
    assert not low.established


def test_wrong_server_certificate_is_refused_by_the_client():
    low, high = pair(server=make_identity("low", 1), client_pins=SERVER_SIDE)
    errors = shake(low, high)
    named(errors, 2, 1)
    assert "client 2 refused this party's certificate" in str(errors[0])
    assert "certificate that client 1 showed, in place of the one" in str(errors[1])
    assert not high.established


def test_certificate_signed_by_the_pinned_one_is_refused():
    child = forge(issuer=CLIENT_SIDE)
    errors = shake(*pair(client=child, server_pins=CLIENT_SIDE))
    assert errors[0].rank == 2 and "refused" in str(errors[0])


def test_certificate_signed_by_a_pinned_authority_is_refused_by_its_fingerprint():
    authority = forge("authority", authority=True)
    child = forge(issuer=authority)
    low, high = pair(client=child, server_pins=authority)
    errors = shake(low, high)
    # OpenSSL lets the child in: only the comparison of the certificates themselves catches it.
    assert errors[0].rank == 2 and "it is another one" in str(errors[0])
    assert not low.established
    with pytest.raises(SecurityError):
        low.open()
    with pytest.raises(SecurityError):
        low.seal(b"for the right one only")


def test_authority_by_omission_does_not_let_its_child_in():
    authority = forge("authority", authority=None)
    errors = shake(*pair(client=forge(issuer=authority), server_pins=authority))
    assert errors[0].rank == 2


def test_same_subject_with_another_key_is_refused():
    twin = forge(subject=subject_of(CLIENT_SIDE))
    errors = shake(*pair(client=twin, server_pins=CLIENT_SIDE))
    assert errors[0].rank == 2


def test_pinned_certificate_without_its_key_is_no_use():
    stolen = Identity("high", CLIENT_SIDE.certificate_der, make_identity("thief").key)
    with pytest.raises(ssl.SSLError):
        pair(client=stolen)


@pytest.mark.parametrize(("days", "words"), [((-20, -1), "expired"), ((1, 9), "not yet valid")])
def test_certificates_out_of_their_time_are_refused_with_the_mend(days, words):
    errors = shake(*pair(client=forge(days=days)))
    assert errors[0].rank == 2 and words in str(errors[0]) and "keygen" in str(errors[0])
    # A clock that is wrong looks the same: nobody is to take another certificate into the roster for it.
    assert "this machine's clock says" in str(errors[0]) and "set the clock that is wrong" in str(errors[0])
    assert "roster add" not in str(errors[0])


def raw_client(version=ssl.TLSVersion.TLSv1_3) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = version
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    return context.wrap_bio(incoming, outgoing), incoming, outgoing


def shake_raw(low: TlsLink, version=ssl.TLSVersion.TLSv1_3) -> None:
    client, incoming, outgoing = raw_client(version)
    for _ in range(3):
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        low.feed(outgoing.read())
        incoming.write(low.outgoing())


def test_peer_without_a_certificate_is_refused():
    low, _ = pair()
    with pytest.raises(SecurityError, match="client 2"):
        shake_raw(low)
    assert not low.established


def test_older_tls_is_refused():
    low, _ = pair()
    with pytest.raises(SecurityError, match=r"TLS 1\.3"):
        shake_raw(low, ssl.TLSVersion.TLSv1_2)


@pytest.mark.parametrize("link", pair())
def test_settings_leave_no_way_around(link):
    context = link._tls.context
    assert context.minimum_version == context.maximum_version == ssl.TLSVersion.TLSv1_3
    assert context.verify_mode == ssl.CERT_REQUIRED and context.keylog_filename is None
    assert context.cert_store_stats()["x509"] == 1
    assert context.num_tickets == 0 or not link.server_side


def test_garbage_instead_of_a_handshake_is_refused():
    low, _ = pair()
    with pytest.raises(SecurityError, match="handshake with client 2 was refused"):
        low.feed(b"GET / HTTP/1.1\r\n\r\n")


def test_unreadable_pinned_certificate_names_the_peer():
    for der in (b"", b"junk"):
        with pytest.raises(SecurityError, match="client 2 cannot be read"):
            TlsLink(SERVER_SIDE, der, server_side=True, peer=HIGH)


def refused_record(low: TlsLink, *records: bytes, secret: bytes = b"") -> None:
    with pytest.raises(SecurityError, match="a record from client 2 was refused") as caught:
        for record in records:
            low.feed(record)
            low.open()
    assert caught.value.rank == 2
    assert not secret or secret.hex() not in str(caught.value) + repr(caught.value.__cause__)
    with pytest.raises(SecurityError):
        low.open()
    with pytest.raises(SecurityError):
        low.feed(b"more")


@pytest.mark.parametrize("place", [0, 3, 5, 20, -1])
def test_changed_record_is_refused(linked, place):
    low, high = linked
    message = os.urandom(40)
    record = bytearray(high.seal(message))
    record[place] ^= 0x40
    if place == 3:  # a longer declared length than came: more bytes complete it
        refused_record(low, bytes(record), high.seal(bytes(1 << 15)), secret=message)
    else:
        refused_record(low, bytes(record), secret=message)


def test_repeated_record_is_refused(linked):
    low, high = linked
    record = high.seal(b"once")
    low.feed(record)
    assert low.open() == [b"once"]
    refused_record(low, record)


def test_reordered_and_dropped_records_are_refused(linked):
    low, high = linked
    high.seal(b"first")
    refused_record(low, high.seal(b"second"))


def test_cut_record_is_refused_when_more_comes(linked):
    low, high = linked
    first = high.seal(b"a message")
    low.feed(first[:-5])
    assert low.open() == []
    refused_record(low, high.seal(b"another"))


def test_record_of_another_link_is_refused(linked):
    low, _ = linked
    _, stranger = other = pair()
    assert shake(*other) == []
    refused_record(low, stranger.seal(b"replayed across links"))


def test_oversized_message_is_refused_at_its_length_field():
    low, high = (
        TlsLink(SERVER_SIDE, CLIENT_SIDE.certificate_der, server_side=True, peer=HIGH, max_message=100),
        TlsLink(CLIENT_SIDE, SERVER_SIDE.certificate_der, server_side=False, peer=LOW),
    )
    assert shake(low, high) == []
    low.feed(high.seal(bytes(100)))
    assert low.open() == [bytes(100)]
    stream = high.seal(bytes(200_000))
    low.feed(stream[: 16384 + 22])
    with pytest.raises(SecurityError, match="200000 bytes: at most 100") as caught:
        low.open()
    assert caught.value.rank == 2 and not low.partial
    with pytest.raises(RangeError, match="at most 100"):
        pair(max_message=100)[0].seal(bytes(101))


def test_small_oversized_message_does_not_slip_through_the_fast_path():
    low, high = (
        TlsLink(SERVER_SIDE, CLIENT_SIDE.certificate_der, server_side=True, peer=HIGH, max_message=10),
        TlsLink(CLIENT_SIDE, SERVER_SIDE.certificate_der, server_side=False, peer=LOW),
    )
    assert shake(low, high) == []
    low.feed(high.seal(bytes(11)))
    with pytest.raises(SecurityError, match="at most 10"):
        low.open()


def test_end_and_eof_mean_that_the_peer_is_gone(linked):
    low, high = linked
    low.feed(high.seal(b"last") + high.end())
    with pytest.raises(PeerGone) as caught:
        low.open()
    assert caught.value.rank == 2
    with pytest.raises(PeerGone):
        high.feed_eof()
    with pytest.raises(PeerGone):
        high.seal(b"too late")


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_secret_shows_and_no_descriptor_is_left():
    before = open_descriptors()
    low, high = pair()
    assert open_descriptors() == before
    secret = SERVER_SIDE.key.private_bytes_raw()
    assert repr(low) == "TlsLink(client 2, established=False)"
    assert secret.hex() not in repr(low) + repr(high)


def test_empty_messages_in_one_record_all_arrive(linked):
    low, high = linked
    low._tls.write(bytes(8) + b"\x01\x00\x00\x00x" + bytes(4))
    high.feed(low.outgoing())
    assert high.open() == [b"", b"", b"x", b""]
    assert not high.partial
