import json
from dataclasses import asdict

import bench
import hosts
import payloads
import pytest
import report
import rounds
import sections
from hypothesis import given
from hypothesis import strategies as st

from pytriton.server.backends import LIBRARY

pytestmark = pytest.mark.thorough

Spread = report.Spread


def measured(system, number, **values):
    return rounds.Round(system, number, {"load": values})


def row(*found, name="p50 us"):
    (only,) = [each for each in report.compare(found) if each.measure == name]
    return only


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_a_spread_lies_between_least_and_greatest(values):
    found = report.spread(values)
    assert found.minimum == min(values)
    assert found.maximum == max(values)
    assert found.minimum <= found.median <= found.maximum


def test_the_median_of_an_even_number_of_rounds_is_halfway():
    assert report.spread([4.0, 1.0, 2.0, 10.0]) == Spread(3.0, 1.0, 10.0)


def test_a_ratio_divides_medians_and_ranges_over_the_rounds():
    assert report.ratio({1: 2.0, 2: 6.0, 3: 4.0}, {1: 4.0, 2: 2.0, 3: 4.0}) == Spread(1.0, 0.5, 3.0)


@pytest.mark.parametrize("theirs", [{}, {1: 0.0}, {2: 5.0}], ids=["nothing", "zero", "no round in common"])
def test_a_ratio_without_a_divisor_is_none(theirs):
    assert report.ratio({1: 2.0}, theirs) is None


def test_rows_pair_the_rounds_of_systems_by_number_in_whatever_order_they_ran():
    found = row(
        measured("ours", 1, **{"p50 us": 10.0}),
        measured("raw", 1, **{"p50 us": 20.0}),
        measured("raw", 2, **{"p50 us": 40.0}),
        measured("ours", 2, **{"p50 us": 30.0}),
    )
    assert found.spreads == {"ours": Spread(20.0, 10.0, 30.0), "raw": Spread(30.0, 20.0, 40.0)}
    assert found.ratios == {"ours/raw": Spread(pytest.approx(2 / 3), 0.5, 0.75)}


def test_a_measure_that_a_system_lacks_has_no_cell_and_no_ratio():
    found = row(measured("ours", 1, **{"p50 us": 10.0}), measured("raw", 1, other=1.0))
    assert found.spreads == {"ours": Spread(10.0, 10.0, 10.0)}
    assert found.ratios == {}


def test_the_table_has_a_heading_per_group_and_aligned_columns():
    first = rounds.Round("ours", 1, {"start": {"s": 1.0}, "load": {"p50 us": 250.0, "errors": 0.0}})
    second = rounds.Round("raw", 1, {"start": {"s": 2.0}, "load": {"p50 us": 125.0, "errors": 0.0}})
    assert report.rounds_table(report.compare([first, second])).splitlines() == [
        "          ours   raw  ours/raw",
        "start",
        "  s       1.00  2.00     0.500",
        "load",
        "  p50 us   250   125      2.00",
        "  errors     0     0         -",
    ]


def test_a_table_without_rows_says_so():
    assert report.rounds_table([]) == "nothing could be measured"


def test_cells_show_the_range_only_if_there_is_one():
    assert str(Spread(1.0, 1.0, 1.0)) == "1.00"
    assert str(Spread(2.0, 1.0, 30.0)) == "2.00 (1.00-30.0)"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0126, "0.013"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (1234.5, "1234")],
)
def test_numbers_have_about_three_digits(value, text):
    assert report.number(value) == text


def test_rows_and_rounds_survive_json():
    found = [measured("ours", 1, s=1.5), measured("raw", 1, s=3.0)]
    (only,) = json.loads(json.dumps([asdict(each) for each in report.compare(found)]))
    assert only["spreads"]["raw"] == {"median": 3.0, "minimum": 3.0, "maximum": 3.0}
    assert only["ratios"]["ours/raw"]["median"] == 0.5
    assert rounds.Round(**json.loads(json.dumps(asdict(found[0])))) == found[0]


def test_cpu_time_goes_to_the_server_its_stubs_and_the_worker():
    stub = "triton_python_backend_stub"
    used_s = [("host", 1.0), ("guard.py", 0.5), ("tritonserver", 3.0), (stub, 2.0), (f"{stub} #2", 4.0)]
    assert rounds.cpu_us(used_s, 1000) == {"server CPU us": 3000, "stub CPU us": 6000, "worker CPU us": 1500}


def test_every_load_has_a_title_of_its_own():
    titles = [case.title for workload in payloads.WORKLOADS for case in sections.cases(workload)]
    assert rounds.Case("grpc", 64).title == "grpc 64 x 64 B"
    assert rounds.Case("http", 16, "1-4 rows, ids").title == "http 16 x 1-4 rows, ids"
    assert len({*titles}) == len(titles) == 6 * len(payloads.WORKLOADS)


def test_each_round_begins_with_another_system_and_has_all():
    orders = [rounds.order(["a", "b", "c"], number) for number in (1, 2, 3, 4)]
    assert orders == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


def test_the_peer_is_measured_when_its_interpreter_is_known():
    assert bench.parse([]).systems == ["ours", "raw"]
    assert bench.parse(["--peer-python", "/x"]).systems == ["ours", "raw", "peer"]
    assert bench.parse(["--peer-python", "/x", "--systems", "peer"]).systems == ["peer"]
    assert bench.parse(["--sections", "rest", "--peers", "litserve=/x", "bentoml=/y"]).peers == {
        "litserve": "/x",
        "bentoml": "/y",
    }
    with pytest.raises(SystemExit):
        bench.parse(["--sections", "rest", "--peers", "other=/x"])


def test_frameworks_that_no_section_measures_are_refused(capsys):
    with pytest.raises(SystemExit):
        bench.parse(["--sections", "pages", "--peers", "litserve=/x"])
    assert "--peers are measured by the sections composition, openai, rest, saved alone" in capsys.readouterr().err


def test_ours_has_the_proxy_of_the_environment_and_python_proxy_always_pythons(monkeypatch):
    monkeypatch.setenv("PYTRITON_PROXY", "auto")
    found = hosts.find_system(hosts.PYTHON_PROXY)
    assert (found.environment["PYTRITON_PROXY"], found.versions["proxy"]) == ("python", "python")
    assert hosts.find_system("ours").environment["PYTRITON_PROXY"] == "auto"


def test_the_proxy_of_ours_is_told_as_it_is_found(monkeypatch):
    monkeypatch.delenv("PYTRITON_PROXY", raising=False)
    assert hosts.find_system("ours").versions["proxy"] == ("native" if LIBRARY.is_file() else "python")


def test_a_proxy_that_cannot_be_used_has_no_result(monkeypatch):
    monkeypatch.setenv("PYTRITON_PROXY", "rust")
    with pytest.raises(hosts.BenchError, match="rust"):
        hosts.find_system("ours")


def test_serving_is_measured_unless_other_sections_are_named():
    assert bench.parse([]).sections == ["serving"]
    assert bench.parse(["--sections", "streams", "clients", "streams"]).sections == ["streams", "clients"]


@pytest.mark.parametrize("section", ["clients", "churn", "inprocess", "workers"])
def test_what_is_measured_of_ours_alone_cannot_be_measured_of_raw(section, capsys):
    with pytest.raises(SystemExit):
        bench.parse(["--sections", section, "--systems", "raw"])
    assert f"the section {section} measures none of these systems, but ours" in capsys.readouterr().err


def test_every_section_measures_systems_that_there_are_and_every_system_has_a_column():
    for section in sections.SECTIONS.values():
        assert {*section.systems} <= {*hosts.SYSTEMS}
    assert {*bench.COLUMNS} == {*hosts.SYSTEMS, *hosts.APPS, *hosts.OTHERS, hosts.LOOPBACK, *hosts.PEERS, sections.BARE}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--rounds", "0"],
        ["--seconds", "0"],
        ["--warmup", "-1"],
        ["--clients", "0"],
    ],
)
def test_durations_and_counts_must_be_positive(arguments, capsys):
    with pytest.raises(SystemExit):
        bench.parse(arguments)
    assert "must be positive" in capsys.readouterr().err
