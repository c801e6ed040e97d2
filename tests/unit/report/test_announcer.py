"""Who says what: once under a launcher, at every party on its own terminal."""

import pytest

from fastlloyd.report.announcer import Announcer
from fastlloyd.report.lines import Journal
from fastlloyd.report.progress import split_event
from fastlloyd.wire.header import SERVER, PartyId

ROUND = {"round": 0, "rounds": 3, "clients": 2, "seconds": 0.0042, "bytes": 96}


@pytest.mark.parametrize(("me", "own", "speaks"), [(0, False, True), (1, False, False), (1, True, True)])
def test_rounds_are_shown_once_or_on_the_own_terminal(capsys, me, own, speaks):
    announcer = Announcer(PartyId(me), own_terminal=own)
    announcer.event("round", **ROUND)
    assert announcer.speaks is speaks
    assert bool(capsys.readouterr().out) is speaks


def test_a_complaint_names_its_rank_where_many_share_a_terminal(capsys):
    Announcer(PartyId(2)).complain("no")
    Announcer(PartyId(2), own_terminal=True).complain("no")
    Announcer(SERVER).complain("no")
    assert capsys.readouterr().err == "fastlloyd: client 2: no\nfastlloyd: no\nfastlloyd: no\n"


def test_a_result_is_printed_where_nobody_else_reads_it():
    assert not Announcer(PartyId(1)).may_print
    assert Announcer(PartyId(1), one_host=True).may_print
    assert Announcer(PartyId(1), own_terminal=True).may_print


def test_what_depends_on_records_is_said_to_their_owner_alone(capsys):
    for options, said in (
        ({"own_terminal": True}, True),
        ({"one_host": True, "quiet": True}, True),
        ({}, False),  # a launcher brings the ranks of several hosts to one terminal
        ({"own_terminal": True, "journal": Journal.LOG}, False),  # a framework may send its log elsewhere
    ):
        Announcer(PartyId(1), **options).confide("half")
        printed = capsys.readouterr()
        assert (printed.err.endswith("half\n"), printed.out) == (said, "")


def test_events_are_for_the_supervisor(capsys):
    Announcer(PartyId(1), events=True).event("done", rank=1, code=0)
    assert split_event(capsys.readouterr().out)[1] == {"event": "done", "rank": 1, "code": 0}


def test_quiet_silences_notes_and_not_complaints(capsys):
    announcer = Announcer(SERVER, quiet=True)
    announcer.note("joined")
    announcer.event("round", **ROUND)
    announcer.complain("gone")
    assert capsys.readouterr() == ("", "fastlloyd: gone\n")


def test_parties_are_called_by_their_names_in_the_roster(capsys):
    names = {0: "Hub", 2: "St\x1b[2J Mary", 3: "Clinic North"}
    Announcer(PartyId(1), own_terminal=True, names=names).complain(
        "client 3 ended the run and says that client 2 is gone; ask client 2, client 12 or the server"
    )
    Announcer(SERVER).complain("client 2 is gone")
    assert capsys.readouterr().err == (
        "fastlloyd: client 3 (Clinic North) ended the run and says that client 2 (St\\x1b[2J Mary) is gone; ask "
        "client 2, client 12 or the server (Hub)\nfastlloyd: client 2 is gone\n"
    )
