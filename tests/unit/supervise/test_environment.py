import os
import stat

import pytest

from fastlloyd.cli import doctor
from fastlloyd.errors import ConfigError
from fastlloyd.net.mpi.launcher import Mpirun
from fastlloyd.supervise import environment


def levels(findings):
    return [finding.level for finding in findings]


def test_healthy_parts():
    for check in (environment.check_python, environment.check_entropy, environment.check_clock, environment.check_tls):
        assert levels(check()) == ["ok"], check.__name__


def test_missing_package_fails_and_says_how_to_mend(monkeypatch):
    monkeypatch.setattr(environment, "_version", lambda name: None if name == "cryptography" else "1")
    findings = list(environment.check_packages())
    assert findings[0].level == "FAIL" and "cryptography" in findings[0].text and "pip install" in findings[0].text


def test_two_mpis_in_one_environment_are_a_warning(monkeypatch):
    monkeypatch.setattr(environment, "_version", lambda name: "1")
    assert levels(environment.check_packages()) == ["ok", "ok", "warn"]


def test_clock_that_was_never_set(monkeypatch):
    monkeypatch.setattr(environment.time, "time", lambda: 1000.0)
    (finding,) = environment.check_clock()
    assert finding.level == "FAIL" and "1970" in finding.text


def test_entropy_that_is_not_ready(monkeypatch):
    def block(count, flags=0):
        raise BlockingIOError

    monkeypatch.setattr(environment.os, "getrandom", block)
    assert levels(environment.check_entropy()) == ["FAIL"]


def test_more_ranks_than_cores_is_a_warning():
    assert next(environment.check_room(100_000)).level == "warn"
    assert next(environment.check_room(1)).level == "ok"


def test_little_memory_is_a_warning(monkeypatch):
    monkeypatch.setattr(environment, "_available_memory", lambda: 5e8)
    assert levels(environment.check_room(1))[1] == "warn"


def test_shared_memory_is_little_by_the_number_of_ranks(monkeypatch):
    monkeypatch.setattr(environment, "_shared_memory", lambda: 64 << 20)
    assert environment.little_shared_memory(3) == ""
    assert "--shm-size=1g, or use --transport tcp" in environment.little_shared_memory(13)


def test_old_openssl(monkeypatch):
    monkeypatch.setattr(environment.ssl, "HAS_TLSv1_3", False)
    assert levels(environment.check_tls()) == ["FAIL"]


def test_a_check_that_breaks_does_not_hide_the_others(monkeypatch):
    def broken():
        raise RuntimeError("broken")
        yield

    def missing():
        raise ConfigError("no mpirun: install one")
        yield

    monkeypatch.setattr(environment, "check_tls", broken)
    monkeypatch.setattr(environment, "check_mpi", missing)
    findings = list(environment.examine(1))
    assert [finding.text for finding in findings if finding.level == "FAIL"] == [
        "broken: RuntimeError: broken",
        "no mpirun: install one",
    ]
    assert findings[-1].level == "note" and "not authenticated" in findings[-1].text


@pytest.mark.parametrize(("level", "code"), [("ok", 0), ("warn", 0), ("FAIL", 2)])
def test_exit_code(monkeypatch, capsys, level, code):
    monkeypatch.setattr(doctor, "examine", lambda ranks, roster: iter([environment.Finding(level, "text")]))
    assert doctor.main([]) == code
    assert capsys.readouterr().out.startswith(f"{level:<5} text\n")


def test_mpirun_that_fails_is_reported_in_its_own_words(tmp_path):
    script = tmp_path / "mpirun"
    script.write_text("#!/bin/sh\necho 'there is no interface' >&2\nexit 7\n")
    script.chmod(stat.S_IRWXU)
    finding = environment._run_probe(Mpirun(script, "mpich", "0"), "shm")
    assert finding.level == "FAIL"
    assert "code 7" in finding.text and "there is no interface" in finding.text


def test_mpirun_that_hangs_is_killed(tmp_path, monkeypatch):
    script = tmp_path / "mpirun"
    script.write_text("#!/bin/sh\nsleep 60\n")
    script.chmod(stat.S_IRWXU)
    monkeypatch.setattr(environment, "_PROBE_DEADLINE_S", 0.1)
    finding = environment._run_probe(Mpirun(script, "mpich", "0"), "shm")
    assert finding.level == "FAIL" and "killed" in finding.text


@pytest.mark.mpi
def test_real_mpi_over_both_transports():
    try:
        findings = list(environment.check_mpi())
    except ConfigError:
        pytest.skip("no mpirun in this environment")
    assert "FAIL" not in levels(findings), findings
    text = " ".join(finding.text for finding in findings)
    assert "two ranks over shared memory" in text and "two ranks over TCP" in text
    if os.access("/sys/class/net/lo/statistics/rx_bytes", os.R_OK):
        assert "counted on the interface lo" in text
