"""What every protocol must do, as a class of tests: derive from it, and state a small run."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from fastlloyd.errors import ConfigError, PeerError
from fastlloyd.net.mpi.launcher import find_mpirun
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.release import Release
from fastlloyd.protocol.masked import Masked
from fastlloyd.protocol.sums import MaskedSums, SumsPlan
from fastlloyd.protocols.registry import find
from fastlloyd.run import simulation as in_memory
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Foreseen
from fastlloyd.run.run_file import to_toml
from fastlloyd.run.session import Adapter, Session, find_protocol
from fastlloyd.testing.whole_run import Sites, command, compare, over_mpi, over_tcp, run_alone, written

# How many standard deviations a statistic of drawn noise may be off: a false alarm in 5 x 10^8 tests.
_FAR = 6.0


class ProtocolContract:
    """Tests of a whole protocol.

    Attributes
    ----------
    config : RunConfig
        A small run: with five rounds or more, if there are several, and noise that leaves something of the result.
    clients : int
        Three or more, so that one may be lost.
    exact : bool
        Whether nothing is drawn that the result depends on.
    sites : class
        Starts the processes of a run over TCP.
    command : function
        Runs a command to its end, as `whole_run.command`.
    """

    config: ClassVar[RunConfig]
    clients: ClassVar[int] = 3
    exact: ClassVar[bool] = False
    sites: ClassVar[type[Sites]] = Sites
    command: ClassVar[Callable[..., str]] = staticmethod(command)

    @property
    def protocol(self) -> Adapter:
        """The protocol under test."""
        return find_protocol(self.config.protocol)

    @property
    def masked_sums(self) -> MaskedSums:
        """The protocol under test, if it is one of masked sums; else the test is left out."""
        if not isinstance(self.protocol, MaskedSums):
            pytest.skip("no protocol on MaskedSums")
        return self.protocol

    def foreseen(self, config: RunConfig | None = None) -> Foreseen:
        """Return what the run would claim and release."""
        found = self.protocol.foresee(config or self.config, self.clients, None)
        assert found is not None, "foresee() must say what a run would claim"
        return found

    def test_a_plan_says_what_it_spends_and_the_claim_agrees(self) -> None:
        """The claim's epsilon is what was asked for, and what the accountant makes of the planned releases."""
        foreseen, unit = self.foreseen(), self.protocol.privacy_unit(self.config)
        assert [line for line in self.protocol.plan_lines(self.config, self.clients, None) if str(line)]
        assert foreseen.claim.unit == unit
        if foreseen.claim.private:
            assert 0.0 < spent(foreseen.releases, foreseen.claim.delta) <= self.config.epsilon * (1 + 1e-9)
            assert unit is not None and foreseen.claim.against not in ("", "nobody")
        else:
            assert unit is None and foreseen.claim.not_private_reason

    def test_in_one_thread_all_with_the_result_have_the_same_and_record_what_was_planned(self) -> None:
        """Results are the same, and each ledger has the planned releases, once each."""
        ended = in_memory.run_together(self.config, self.clients)
        results = [outcome.result for outcome in ended.outcomes.values() if outcome.result is not None]
        assert results and all(result.files == results[0].files for result in results)
        planned = Counter((one.round, one.name, one.noise_multiplier) for one in self.foreseen().releases)
        for party, ledger in ended.ledgers.items():
            if not party.is_server:
                got = Counter((one.round, one.name, one.noise_multiplier) for one in ledger.releases)
                assert got == planned, party
        sizes = [len(outcome.raw_labels) for outcome in ended.outcomes.values() if outcome.raw_labels is not None]
        assert not sizes or len(sizes) == self.clients

    def test_over_tcp_it_is_the_same(self, tmp_path: Path) -> None:
        """A thread for each party and a real port come to what one thread comes to."""
        compare(over_tcp(self.config, self.clients, tmp_path), run_alone(self.config, self.clients), exact=self.exact)

    @pytest.mark.mpi
    @pytest.mark.parametrize("masking", ["common", "threshold"])
    def test_over_mpi_it_is_the_same(self, masking: str, tmp_path: Path) -> None:
        """A process for each party comes to the same, and its report verifies."""
        config = self._masked(masking)
        try:
            find_mpirun()
        except ConfigError as error:
            pytest.skip(str(error))
        compare(over_mpi(config, self.clients, tmp_path), run_alone(config, self.clients), exact=self.exact)
        assert "verified: " in self.command(tmp_path, "report", "result", "--verify")

    @pytest.mark.parametrize("masking", ["pairwise", "threshold"])
    def test_with_other_masks_it_is_the_same(self, masking: str, tmp_path: Path) -> None:
        """The clients add the noise, in shares or in parts."""
        config = self._masked(masking)
        compare(over_tcp(config, self.clients, tmp_path), run_alone(config, self.clients), exact=self.exact)
        assert self.foreseen(config).masking == masking

    @pytest.mark.process
    @pytest.mark.parametrize("masking", ["common", "threshold"])
    def test_without_a_client_the_others_go_on(self, masking: str, tmp_path: Path) -> None:
        """A client that dies is left out of later rounds, if the run does not need it."""
        if self.clients < 3 or not self._several_rounds:
            pytest.skip("no client can be lost")
        config = replace(self._masked(masking), min_clients=self.clients - 1)
        try:
            self.protocol.gather(config, self.clients)
        except ConfigError as error:
            pytest.skip(str(error))
        with self.sites(tmp_path, config, self.clients, "--deadline", "5", "--delay", "0.1") as sites:
            sites.until((sites.run_folder(1) / "reply-0").exists)
            sites.kill(self.clients)
            codes = sites.finish()
            assert codes[: self.clients] == [0] * self.clients, sites.said
        included = json.loads((tmp_path / "1" / "result" / "report.json").read_text())["rounds"]
        assert included[-1]["clients_included"] == list(range(1, self.clients))

    @pytest.mark.process
    @pytest.mark.parametrize("masking", ["common", "threshold"])
    def test_a_killed_run_goes_on_and_releases_nothing_twice(self, masking: str, tmp_path: Path) -> None:
        """After a kill all resume: every planned release stands once in each client's ledger."""
        if not find(self.config.protocol).resumes or not self._several_rounds:
            pytest.skip("no run to resume")
        config = self._masked(masking)
        if masking == "threshold":
            config = replace(config, min_clients=self.clients)
        with self.sites(tmp_path, config, self.clients, "--deadline", "5", "--delay", "0.1") as sites:
            sites.until((sites.run_folder(1) / "reply-1").exists)
            sites.kill(2)
            assert 0 not in sites.finish()
        with self.sites(tmp_path, config, self.clients, "--resume") as sites:
            assert set(sites.finish()) == {0}, sites.said
        planned = Counter((release.round, release.name) for release in self.foreseen(config).releases)
        for rank in range(1, self.clients + 1):
            lines = (sites.run_folder(rank).parent / "ledger.jsonl").read_text().splitlines()
            entries = [json.loads(line) for line in lines]
            assert Counter((entry["round"], entry["name"]) for entry in entries) == planned
            assert len({entry["run"] for entry in entries}) == 1
            assert written(tmp_path / str(rank) / "result")
            assert "verified: " in self.command(tmp_path / str(rank), "report", "result", "--verify")

    def test_the_id_of_an_earlier_run_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The releases of a run whose id stands in the ledger already would not be counted again."""
        planned = self.foreseen().releases[0]

        def with_a_past(**given: Any) -> Session:
            session = Session(**given)
            if session.me.rank == 1:
                session.ledger.record([replace(planned, run=session.run_id.hex())])
            return session

        monkeypatch.setattr(in_memory, "Session", with_a_past)
        with pytest.raises(PeerError, match="id of an earlier run"):
            in_memory.run_together(self.config, self.clients)

    @pytest.mark.process
    def test_the_dossier_says_who_sees_what(self, tmp_path: Path) -> None:
        """Who approves a run reads what leaves the site, who sees it, and what is promised."""
        (tmp_path / "run.toml").write_text(to_toml(self.config))
        written_ = self.command(tmp_path, "dossier", "--config", "run.toml", "--clients", str(self.clients))
        assert "comes from another package" not in written_ and "does not say them beforehand" not in written_
        assert f"epsilon {self.config.epsilon:g}" in written_ or not self.foreseen().claim.private

    @pytest.mark.parametrize("masking", ["common", "pairwise", "threshold"])
    def test_the_noise_that_is_added_is_the_plan_s(self, masking: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """What the clients receive less what they added has the planned standard deviation (false alarms: `_FAR`)."""
        kind, exact, noisy = type(self.masked_sums), [], []
        local, step = kind.local, kind.step

        def added(self: MaskedSums, *given: Any) -> Any:
            exact.append(local(self, *given))
            return exact[-1]

        def received(self: MaskedSums, *given: Any) -> Any:
            noisy.append(given)
            return step(self, *given)

        monkeypatch.setattr(kind, "local", added)
        monkeypatch.setattr(kind, "step", received)
        monkeypatch.setattr(kind, "result_noise", lambda *given: None)
        monkeypatch.setattr(kind, "result", lambda *given: None)
        with pytest.raises(AttributeError):  # there is no result to sign: all rounds are over
            in_memory.run_together(replace(self.config, masking=masking), self.clients)
        plan: SumsPlan = noisy[0][2]
        scores = []
        for t in range(len(plan.rounds)):
            sums = next(given[0] for given in noisy if given[3] == t)
            of_round = exact[t * self.clients : (t + 1) * self.clients]
            for part in plan.parts:
                true = np.sum([one[part.name] for one in of_round], axis=0)
                scores.append(np.ravel(sums[part.name] - true) / plan.noise_on(part.name, t))
        squares, count = float((np.concatenate(scores) ** 2).sum()), sum(map(len, scores))
        # Wilson and Hilferty: the cube root of a chi-squared number over its degrees is about normal.
        off = ((squares / count) ** (1 / 3) - (1 - 2 / (9 * count))) / math.sqrt(2 / (9 * count))
        assert abs(off) < _FAR, f"noise of {math.sqrt(squares / count):.3g} times the plan's"

    def test_one_record_moves_no_part_by_more_than_was_stated(self) -> None:
        """Of random records, corners among them: this can show a fault, it proves nothing."""
        protocol, rng = self.masked_sums, np.random.default_rng(1)
        assert isinstance(protocol, MaskedSums)
        plan = protocol.planned(self.config, self.clients, None)
        state = protocol.start(plan)
        points = np.concatenate([rng.uniform(-1, 1, (20, plan.d)), rng.choice([-1.0, 1.0], (20, plan.d))])
        whole = protocol.local(points, state, plan)
        for i in range(len(points)):
            other = protocol.local(np.delete(points, i, axis=0), state, plan)
            for part in plan.parts:
                moved = float(np.linalg.norm(np.ravel(whole[part.name] - other[part.name])))
                assert moved <= part.sensitivity * (1 + 1e-12), part.name

    def _masked(self, masking: str) -> RunConfig:
        """Return the run with these masks; without a protocol that has them the test is left out."""
        has = self.protocol.opens_rounds if masking == "threshold" else isinstance(self.protocol, Masked)
        if masking != "common" and not has:
            pytest.skip("no protocol of noisy masked sums")
        return self.config if masking == "common" else replace(self.config, masking=masking)

    @property
    def _several_rounds(self) -> bool:
        releases: list[Release] = list(self.foreseen().releases)
        return max(release.round for release in releases) >= 4
