"""`fastlloyd check`: what it prints, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from fastlloyd.cli.check import main
from fastlloyd.errors import ConfigError, DataError, RangeError
from fastlloyd.run.config import OPTIONS, RunConfig


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "clinic_1.csv"
    path.write_text("id,age,dose,site,name\n1,30,0.5,7,x\n2,40,5,7,y\n3,,1,7,z\n4,40,5,7,y\n")
    return path


def lines(capsys):
    return capsys.readouterr().out.splitlines()


def test_a_summary_that_ends_ready(records, capsys):
    code = main(["--data", str(records), "--bounds", "-1,50", "--missing", "midpoint", "--k", "9", "--n-total", "10"])
    out = lines(capsys)
    assert code == 0
    assert out[-1] == "ready"
    text = "\n".join(out)
    assert "rows      4" in text
    assert "3 used: age, dose, site" in text
    assert "2 ignored: id (its name says that it names rows), name (text)" in text
    assert "1 row filled with the middle of the bounds (rule: midpoint)" in text
    assert "0 of 12 values lie outside" in text
    assert "one value only in 1 column: site" in text
    assert "1 row equals an earlier one" in text
    assert "fewer than k = 9" in text
    assert "10 rows, the public N of all clients together" in text


def test_what_to_expect_is_said_where_the_public_numbers_are_known(records, capsys):
    assert (
        main(
            [
                "--data",
                str(records),
                "--bounds",
                "0,100",
                "--missing",
                "drop",
                "--k",
                "2",
                "--n-total",
                "500",
                "--clients",
                "2",
            ]
        )
        == 0
    )
    assert "\nexpected  noise of " in capsys.readouterr().out
    assert main(["--data", str(records), "--bounds", "0,100", "--missing", "drop", "--k", "2"]) == 0
    assert "\nexpected" not in capsys.readouterr().out


def test_what_a_run_needs_and_nobody_has_given_is_named(records, tmp_path, capsys):
    asked = ["--data", str(records), "--missing", "drop"]
    assert main(asked) == 0
    assert lines(capsys)[-1] == "records ready, bounds not checked; still missing: --bounds, --n-total, --k"
    needed = {"bounds": "0,100", "n_total": 500, "k": 2}
    for lacking in needed:
        given = {name: value for name, value in needed.items() if name != lacking}
        flag = OPTIONS[lacking].flag
        with pytest.raises(ConfigError, match=f"--data needs {flag}"):
            RunConfig(data=str(records), **given)
        assert main([*asked, *(word for name in given for word in (OPTIONS[name].flag, str(given[name])))]) == 0
        assert lines(capsys)[-1].replace(", bounds not checked", "") == f"records ready; still missing: {flag}"
    lists = tmp_path / "categories.csv"
    lists.write_text("feature,category\nname,x\nname,y\nname,z\n")
    assert main([*asked, "--categories", str(lists), "--n-total", "500", "--k", "2", "--clients", "2"]) == 0
    out = lines(capsys)
    assert out[-1] == "ready" and any(line.startswith("columns   3 used: name=x") for line in out)


def test_the_epsilon_of_what_to_expect_can_be_given(records, capsys):
    asked = ["--data", str(records), "--bounds", "0,100", "--missing", "drop", "--k", "2", "--n-total", "5000"]
    said = []
    for flags in ([], ["--epsilon", "1"], ["--epsilon", "5"]):
        assert main([*asked, "--clients", "2", *flags]) == 0
        said.append([line for line in lines(capsys) if line.startswith("expected")])
    assert said[0] == said[1] != said[2]


def test_missing_values_are_counted_for_each_column(tmp_path, capsys):
    path = tmp_path / "clinic.csv"
    path.write_text("age,dose,site\n1,,7\n2,NA,7\n,3,7\n4,5,7\n")
    assert main(["--data", str(path), "--missing", "drop"]) == 0
    text = "\n".join(lines(capsys))
    assert "rows      4\nrecords   1 after 3 rows were dropped\n" in text
    assert "missing   3 rows dropped" in text and "values: 1 in 'age', 2 in 'dose'\n" in text
    with pytest.raises(
        DataError, match=r"row 1 \(line 2\), column 'dose': .*missing values: 1 in 'age', 2 in 'dose'\)"
    ):
        main(["--data", str(path)])


def test_values_outside_are_counted_per_feature(records, capsys):
    assert main(["--data", str(records), "--bounds", "0,6", "--missing", "drop"]) == 0
    out = lines(capsys)
    age = next(line for line in out if line.strip().startswith("age"))
    assert "3 outside (100.00 %)  check the units" in age
    dose = next(line for line in out if line.strip().startswith("dose"))
    assert "0 outside (0.00 %)" in dose
    assert any("6 of 9 values lie outside and will be clipped" in line for line in out)
    assert max(map(len, (age, dose))) <= 60


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ("1", "0 of 1 value lies outside"),
        ("9", "1 of 1 value lies outside"),
        ("1\n2", "0 of 2 values lie outside"),
        ("1\n9", "1 of 2 values lies outside"),
    ],
)
def test_counts_agree_with_their_verb(cells, sentence, tmp_path, capsys):
    path = tmp_path / "r.csv"
    path.write_text(f"a\n{cells}\n")
    assert main(["--data", str(path), "--bounds", "0,5"]) == 0
    assert sentence in capsys.readouterr().out
    assert main(["--data", str(path), "--n-total", "7", "--clients", "1"]) == 0
    assert "7 rows, the cap of the one client" in capsys.readouterr().out


def test_no_value_of_a_record_is_shown(tmp_path, capsys):
    path = tmp_path / "r.csv"
    path.write_text("a\n123.25\n777.5\n")
    main(["--data", str(path), "--bounds", "0,1000"])
    out = capsys.readouterr().out.replace(str(tmp_path), "")  # a path may have such digits, too
    assert "123" not in out
    assert "777" not in out


def test_a_bounds_file_chooses_the_columns(records, tmp_path, capsys):
    bounds = tmp_path / "bounds.csv"
    bounds.write_text("feature,lo,hi\ndose,0,10\n")
    assert main(["--data", str(records), "--bounds", str(bounds)]) == 0
    assert "1 used: dose" in capsys.readouterr().out


def test_columns_without_bounds_are_refused(records, tmp_path):
    bounds = tmp_path / "bounds.csv"
    bounds.write_text("feature,lo,hi\ndose,0,10\n")
    with pytest.raises(ConfigError, match="name no feature 'site'"):
        main(["--data", str(records), "--bounds", str(bounds), "--columns", "dose,site"])


def test_the_template_and_the_run_file(records, tmp_path, capsys):
    template = str(tmp_path / "clinic_{client}.csv")
    run = tmp_path / "run.toml"
    run.write_text(
        f'data = "{template}"\nbounds = "0,50"\nk = 2\nn_total = 20\nclient_caps = [4, 3]\nmissing = "drop"\n'
    )
    assert main(["--config", str(run), "--client", "1"]) == 0
    assert "4 rows, the cap of client 1" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="say which with --client"):
        main(["--config", str(run)])
    with pytest.raises(DataError, match=r"no file .*clinic_2\.csv"):
        main(["--config", str(run), "--client", "2"])
    with pytest.raises(ConfigError, match="caps are given for 2"):
        main(["--config", str(run), "--client", "3", "--data", str(records)])
    with pytest.raises(DataError, match="4 rows are more than 3, the cap of client 2"):
        main(["--config", str(run), "--client", "2", "--data", str(records), "--columns", "dose"])
    with pytest.raises(DataError, match="the value is missing"):
        main(["--config", str(run), "--client", "1", "--missing", "refuse"])


def test_more_rows_than_the_cap_are_refused_after_the_summary(records, capsys):
    argv = ["--data", str(records), "--columns", "dose", "--n-total", "7", "--clients", "2"]
    with pytest.raises(DataError, match="4 rows are more than 3, the cap of each of 2 clients"):
        main(argv)
    out = capsys.readouterr().out
    assert "rows      4" in out
    assert "ready" not in out


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "nothing to check"),
        (["--data", "x.csv", "--k", "0"], "--k: expected a whole number, at least 1, got '0'"),
        (["--data", "x.csv", "--client", "0"], "--client: expected a whole number, at least 1, got 0"),
        (["--data", "x.csv", "--k", "5", "--n-total", "4"], "more clusters than records"),
        (["--data", "x.csv", "--bounds", "auto-public"], "public --dataset only"),
        (["--data", "x.csv", "--bounds", "1,-1"], "LO < HI"),
        (["--daat", "x.csv"], "unrecognized arguments: --daat x.csv .did you mean .--data"),
    ],
)
def test_flags_that_do_not_fit(argv, sentence):
    with pytest.raises(ConfigError, match=sentence):
        main(argv)


def test_many_features_are_not_all_listed(tmp_path, capsys):
    values = np.zeros((3, 50))
    values[:, 40] = 9.0
    np.save(tmp_path / "wide.npy", values)
    assert main(["--data", str(tmp_path / "wide.npy"), "--bounds", "-1,1"]) == 0
    out = capsys.readouterr().out
    assert "x41 " in out
    assert "and 30 more features, 0 of them with values outside" in out
    assert len(out.splitlines()) < 40


def test_caps_of_each_client(records, capsys):
    flags = ["--data", str(records), "--missing", "drop", "--client-caps", "2,9"]
    assert main([*flags, "--client", "2"]) == 0
    assert "9 rows, the cap of client 2" in capsys.readouterr().out
    with pytest.raises(DataError, match="3 rows are more than 2, the cap of client 1"):
        main([*flags, "--client", "1"])
    with pytest.raises(ConfigError, match="--client 3: caps are given for 2 clients only"):
        main([*flags, "--client", "3"])
    with pytest.raises(ConfigError, match="--client-caps: expected a list of whole numbers"):
        main([*flags[:-1], "2,x"])


def _parties(tmp_path, protocol, more=""):
    """Two parties' columns of the same people, and a run file that names them by number."""
    for rank, (one, other) in enumerate([("age", "income"), ("spend", "visits"), ("rent", "rooms")]):
        rows = "".join(f"{10 + row},{row % 7},{row % 5}\n" for row in range(40))
        (tmp_path / f"office_{rank}.csv").write_text(f"id,{one},{other}\n{rows}")
        (tmp_path / f"bounds_{rank}.csv").write_text(f"feature,lo,hi\n{one},0,7\n{other},0,5\n")
    run = tmp_path / "run.toml"
    run.write_text(
        f'protocol = "{protocol}"\ndata = "office_{{client}}.csv"\nbounds = "bounds_{{client}}.csv"\nk = 2\n'
        f"n_total = 40\n{more}"
    )
    return str(run)


@pytest.mark.parametrize(("protocol", "rank", "clients"), [("vertical-he", 0, 1), ("vertical-dp", 2, 2)])
def test_a_vertical_partys_file_is_read_as_the_run_reads_it(tmp_path, capsys, protocol, rank, clients):
    words = ["--config", _parties(tmp_path, protocol), "--client", str(rank), "--clients", str(clients)]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "2 used: " in out and "1 ignored: id" in out and "40 rows, the public N\n" in out
    assert "\nexpected  not known from this party's columns alone: add --d" in out and out.endswith("ready\n")
    assert main([*words, "--d", "4"]) == 0
    assert "\nexpected  noise of " in capsys.readouterr().out
    path = tmp_path / f"office_{rank}.csv"
    path.write_text(path.read_text() + "10,1,1\n")
    with pytest.raises(DataError, match="row 1 and row 41 have the same id"):
        main(words)


def test_what_a_vertical_run_refuses_check_refuses(tmp_path):
    run = _parties(tmp_path, "vertical-dp")
    with pytest.raises(ConfigError, match="--set vertical.id=COLUMN"):
        main(["--config", run, "--client", "1", "--id", "id"])
    with pytest.raises(ConfigError, match=r"--bounds .*bounds_\{client\}.csv stands for one file per client"):
        main(["--config", run, "--data", str(tmp_path / "office_1.csv")])
    with pytest.raises(ConfigError, match="--client: expected a whole number, at least 0, got -1"):
        main(["--config", run, "--client", "-1"])


def test_a_client_needs_nothing_of_the_servers_to_hear_what_to_expect(tmp_path, capsys):
    (tmp_path / "clinic.csv").write_text("a,b\n1,2\n3,4\n")
    run = tmp_path / "run.toml"
    text = 'protocol = "feddp"\nbounds = "0,5"\nk = 2\nn_total = 900\nserver_data = "elsewhere.csv"\n'
    run.write_text(text)
    words = ["--config", str(run), "--data", str(tmp_path / "clinic.csv"), "--clients", "2"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "\nassumed   as many points of the server as clusters" in out and "\nexpected  noise of " in out
    run.write_text(text + '[feddp]\nprivacy_level = "client"\n')
    assert main(words) == 0
    assert "expected  noise of at least " in capsys.readouterr().out
    with pytest.raises(ConfigError, match="--d 2: feddp counts the columns"):
        main([*words, "--d", "2"])


def test_public_values_that_no_run_takes_are_not_called_ready(tmp_path, capsys):
    path = tmp_path / "one.csv"
    path.write_text("age\n40\n")
    asked = ["--data", str(path), "--bounds", "0,100", "--k", "2", "--client", "1"]
    assert main([*asked, "--n-total", "500", "--client-caps", "300,200"]) == 0
    out = lines(capsys)
    assert out[-1] == "ready" and not any(line.startswith("constant") for line in out)
    with pytest.raises(ConfigError, match="--client-caps: expected one number for each of 4 clients, got 2"):
        main([*asked, "--n-total", "500", "--client-caps", "300,200", "--clients", "4"])
    with pytest.raises(ConfigError, match="--client-caps: expected a sum of at most --n-total 400, got 500"):
        main([*asked, "--n-total", "400", "--client-caps", "300,200"])
    with pytest.raises(RangeError, match="set ring_bits = 64"):
        main([*asked, "--n-total", "4000000000", "--clients", "2"])
    assert "ready" not in capsys.readouterr().out


def test_codes_of_missing_values_are_shown_to_the_owner(tmp_path, capsys):
    ages = [f"{20 + at % 60},{-999 if at % 10 == 0 else at % 7}" for at in range(100)]
    (tmp_path / "own.csv").write_text("age,lab\n" + "\n".join(ages) + "\n")
    assert main(["--data", str(tmp_path / "own.csv"), "--bounds", "0,100"]) == 0
    said = [line for line in lines(capsys) if line.startswith("warning")]
    assert said == [
        "warning   more than 5 % of the values of lab (10 %) would be clipped: check units and bounds",
        "warning   column 'lab': -999 in 10 rows, far from all others: if that means missing, add --na -999",
    ]


def test_bounds_that_a_run_finds_are_not_missing_and_the_first_run_is_looked_at(tmp_path, capsys):
    (tmp_path / "own.csv").write_text("lab\n" + "\n".join(["-999"] * 10 + [f"{3 + at % 90 / 10}" for at in range(300)]))
    words = ["--data", str(tmp_path / "own.csv"), "--bounds", "private", "--n-total", "3000", "--k", "2"]
    (tmp_path / "run.toml").write_text('masking = "threshold"\n')
    assert main([*words, "--config", str(tmp_path / "run.toml"), "--clients", "3"]) == 0
    said = lines(capsys)
    assert said[-1] == "ready" and "bounds    not checked: a run finds them" in said
    assert any(line.startswith("warning   column 'lab': -999") for line in said)
    assert any(line.startswith("found     noise on a count of 0.") and ": good" in line for line in said)
    with pytest.raises(ConfigError, match="--masking common: private-bounds expects"):
        main([*words, "--clients", "3"])
