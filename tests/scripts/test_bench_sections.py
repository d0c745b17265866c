"""What rounds and sections make of what hosts and load programs do."""

import sys

import hosts
import pytest
import rounds
import sections

pytestmark = pytest.mark.thorough

OURS, RAW, LIMIT, PEER = (hosts.System(name, [sys.executable], {}, {}) for name in ("ours", "raw", "limit", "peer"))
RESULT = {"requests/s": 9, "p50 us": 11, "p99 us": 13, "errors": 0, "answered": 9}
PRINTED = {
    "load.py": RESULT,
    "blocking": {"pytriton": RESULT, "tritonclient": {**RESULT, "p50 us": 10}},
    "asyncio": {**RESULT, "client CPU us": 5},
    "stream": {"responses/s": 1000, "client CPU us": 3, "answered": 1500},
    "churn": {"ms per client": 7, "threads before": 2, "threads after": 4},
    "inprocess": {
        "in process 1 x 64 B": {"p50 us": 22},
        "ModelClient, http 1 x 64 B": {"p50 us": 44},
        "ModelClient, in process 1 x 64 B": {"p50 us": 33},
        "in process 1 x 1 MiB": {"p50 us": 11},
        "in process 16 x 64 B": {"requests/s": 18},
    },
}
SERVER_TITLE = "stream of 500 x 64 B to tritonclient"
CLIENT_TITLE = "stream of 500 x 64 B from ours to DecoupledModelClient"


class Host:
    """A host without processes."""

    left: tuple[str, ...] = ()
    copies = False

    def __init__(self, system, folder, models=("double",), ports=()):
        self.system, self.ports = system, {"http": 1, "grpc": 2}

    def __enter__(self):
        return self

    def __exit__(self, *_): ...

    def wait_first_answer(self):
        return 0.5

    def family(self):
        return []

    def stop(self):
        return 0.1

    def left_behind(self):
        return list(self.left)

    def tail(self):
        return "the host's last words"


class Programs:
    """Programs that print :data:`PRINTED`, but for those that fail, each ``(kind, caller)``."""

    def __init__(self, *failing):
        self.failing, self.ran = failing, []

    def start(self, host, caller, script, *arguments, **options):
        kind, protocol = ([script, *arguments])[-2:]
        self.ran.append((kind, caller.name or host.system.name, protocol, options))
        return kind, caller.name or host.system.name

    def read(self, host, program, timeout_s=0):
        if program in self.failing:
            raise hosts.BenchError(f"{program[0]} failed")
        return {**PRINTED[program[0]]}


def make_plan(folder, *systems, **options):
    times = {"seconds": 0.1, "warmup_s": 0, "rounds": 1}
    return rounds.Plan(systems=systems, clients=50, folder=folder, say=lambda _: None, **{**times, **options})


@pytest.fixture
def programs(monkeypatch):
    """``programs(*failing)`` puts them, and hosts without processes, in the place of the real ones."""

    def put(*failing, host=Host):
        found = Programs(*failing)
        monkeypatch.setattr(rounds, "IDLE_S", 0)
        monkeypatch.setattr(rounds, "start_program", found.start)
        monkeypatch.setattr(rounds, "read_program", found.read)
        for module in (rounds, sections):
            monkeypatch.setattr(module, "Host", host)
        return found

    return put


@pytest.fixture
def measure(tmp_path):
    """``measure(section, *systems, **options of the plan)``: all rounds."""

    def measure(section, *systems, number=1, **options):
        plan = make_plan(tmp_path, *systems, rounds=number, **options)
        return sections.SECTIONS[section].rounds(section, plan)

    return measure


def by_system(found):
    return {each.system: each for each in found}


@pytest.mark.parametrize("section", ["rows", "ids", "parameters", "pair", "bytes", "256k"])
def test_mixed_requests_are_measured_of_each_system_over_both_protocols(programs, measure, section):
    ran = programs().ran
    found = measure(section, OURS, RAW, LIMIT, number=2)
    assert [each.system for each in found] == ["ours", "raw", "limit", "raw", "limit", "ours"]
    assert all(len(each.values) == 7 and not each.problems for each in found)
    loads = [(protocol, options["connections"]) for _, system, protocol, options in ran[:6]]
    assert loads == [(protocol, count) for protocol in ("http", "grpc") for count in (1, 16, 64)]
    assert len({options["workload"] for *_, options in ran}) == 1


def test_loads_are_left_out_unless_their_titles_contain_a_text(programs, measure):
    ran = programs().ran
    measure("serving", OURS, only="http 16")
    assert [(protocol, options["connections"]) for _, _, protocol, options in ran] == [("http", 16)]


def test_the_limit_has_no_streams(programs, measure):
    programs()
    assert by_system(measure("streams", OURS, LIMIT)).keys() == {"ours"}


def test_a_load_that_fails_ends_the_round_of_its_system_alone_which_keeps_what_was_measured(programs, measure):
    programs(("load.py", "raw"))
    found = by_system(measure("strings", OURS, RAW))
    assert found["raw"].problems == ["load.py failed"]
    assert found["raw"].values["start and stop"] == {"first answer s": 0.5}
    assert len(found["ours"].values) == 5


def test_errors_of_loads_are_problems(programs, measure, monkeypatch):
    programs()
    monkeypatch.setitem(PRINTED, "load.py", {**RESULT, "errors": 3})
    assert by_system(measure("strings", RAW))["raw"].problems[0] == "http 1 x 1000 strings: 3 errors"


def test_serving_has_the_start_less_its_imports_the_memory_and_the_stop(programs, measure):
    programs()
    values = by_system(measure("serving", OURS))["ours"].values
    times = values["start and stop"]
    assert times["first answer less imports s"] == 0.5 - times["import numpy, tritonclient s"]
    assert times["stop s"] == 0.1
    assert values["memory after small loads, MiB"] == {"all PSS": 0}
    assert values["grpc 2 x 16 MiB"]["requests/s"] == 9


def test_many_models_are_started_of_ours_alone(programs, measure):
    programs()
    found = by_system(measure("start", OURS, RAW))
    assert found["ours"].values == {title: {"first answer s": 0.5, "stop s": 0.1} for title in STARTS}
    assert list(found["raw"].values) == STARTS[:1]


STARTS = ["start and stop", "start and stop, 400 models"]


def test_clients_are_measured_with_both_protocols_and_compared_with_tritonclient(programs, measure):
    programs()
    found = by_system(measure("clients", OURS, PEER))
    blocking = "ModelClient, http 1 x 64 B"
    assert found["ours"].values.keys() - {"start and stop"} == found["peer"].values.keys()
    assert len(found["peer"].values) == 4
    assert found["ours"].values[blocking]["p50 / tritonclient's"] == pytest.approx(1.1)
    assert found["tritonclient"].values[blocking]["p50 us"] == 10
    assert found["peer"].values["AsyncioModelClient, grpc 64 x 64 B"]["client CPU us"] == 5


def test_each_round_of_clients_begins_with_another(programs, measure):
    ran = programs().ran
    measure("clients", OURS, RAW, PEER, number=2)
    assert [caller for kind, caller, *_ in ran if kind == "asyncio"] == [
        *("ours", "peer", "ours", "peer"),
        *("peer", "ours", "peer", "ours"),
    ]


def test_a_client_that_fails_is_a_problem_of_its_system_alone(programs, measure):
    programs(("asyncio", "peer"))
    found = by_system(measure("clients", OURS, PEER))
    assert found["peer"].problems == ["asyncio failed"] * 2
    assert found["ours"].problems == []
    assert len(found["peer"].values) == 2


def test_what_the_server_leaves_behind_is_a_problem_of_ours(programs, measure):
    class Leaving(Host):
        left = ("file left: x",)

    programs(host=Leaving)
    found = by_system(measure("clients", OURS, PEER))
    assert (found["ours"].problems, found["peer"].problems) == (["file left: x"], [])


def test_a_server_that_does_not_start_is_a_problem_of_its_system(programs, measure):
    class Dead(Host):
        def wait_first_answer(self):
            raise hosts.BenchError("no answer")

    ran = programs(host=Dead).ran
    assert by_system(measure("clients", OURS, PEER))["ours"].problems == ["no answer"]
    assert ran == []


def test_streams_are_measured_of_each_system_with_our_tritonclient_and_of_clients_on_ours(programs, measure):
    ran = programs().ran
    found = measure("streams", OURS, RAW, PEER, number=2)
    servers = [each.system for each in found if SERVER_TITLE in each.values]
    clients = [each.system for each in found if CLIENT_TITLE in each.values]
    assert sorted(servers) == ["ours", "ours", "peer", "peer", "raw", "raw"]
    assert clients == ["ours", "peer", "ours", "peer"] or sorted(clients) == ["ours", "ours", "peer", "peer"]
    bare = [caller for *_, caller, _, options in ran if options["client"] == "tritonclient"]
    assert bare == ["ours"] * 6


def test_a_client_of_streams_that_fails_leaves_the_others_measured(programs, measure):
    programs(("stream", "peer"))
    found = by_system(measure("streams", OURS))
    assert found["ours"].problems == []
    found = measure("streams", OURS, PEER)
    failed = [each for each in found if each.problems]
    assert [(each.system, each.problems, each.values) for each in failed] == [("peer", ["stream failed"], {})]


def test_churn_has_a_census_before_and_after_for_each_kind_in_one_round(programs, measure):
    programs()
    (found,) = measure("churn", OURS, number=3)
    assert len(found.values) == 1 + 8
    assert found.values["50 x DecoupledModelClient, grpc"] == PRINTED["churn"]


def test_the_server_in_process_is_compared_with_loads_over_http(programs, measure):
    programs()
    (found,) = measure("inprocess", OURS)
    assert found.problems == []
    assert found.values["in process / HTTP"] == {
        "64 B p50": 2.0,
        "64 B p50, over ModelClient": 0.5,
        "64 B p50, both ModelClient": 0.75,
        "1 MiB p50": 1.0,
        "16 in flight requests/s": 2.0,
        "16 in flight requests/s, over AsyncioModelClient": 2.0,
    }


def test_workers_are_measured_beside_what_they_are_compared_with(programs, measure, monkeypatch):
    found = programs()
    rates = iter([100, 190, 200, 110, *[50] * 100])
    monkeypatch.setattr(rounds, "read_program", lambda *_: {**RESULT, "requests/s": next(rates)})
    (only,) = measure("workers", OURS)
    assert only.problems == []
    assert only.values["a callable of Python alone"]["2 workers / 1"] == 195 / 105  # the means of there and back
    assert len(found.ran) == 4 * (1 + 4) + 2 * 4
    assert "start and stop" not in only.values


def test_what_a_section_cannot_measure_is_left_out(programs, measure):
    programs()
    assert by_system(measure("workers", OURS, RAW, PEER)).keys() == {"ours"}


def test_clients_are_those_of_ours_and_of_the_peer(tmp_path):
    other = hosts.System("python-proxy", [sys.executable], {}, {})
    assert make_plan(tmp_path, other, RAW, OURS, PEER).callers(1) == [OURS, PEER]


def run_program(tmp_path, source, timeout_s=60):
    (tmp_path / "program.py").write_text(source)
    host, program = Host(OURS, None), str(tmp_path / "program.py")
    return rounds.read_program(host, rounds.start_program(host, OURS, program, "kind", "http", in_flight=3), timeout_s)


def test_a_program_gets_its_options_and_its_line_of_json_is_read(tmp_path):
    found = run_program(tmp_path, "import json, sys; print(json.dumps({'got': sys.argv[1:]}))")
    assert found == {"got": ["kind", "http", "--port=1", "--in-flight=3"]}


def test_a_program_that_fails_is_quoted_with_its_host(tmp_path):
    with pytest.raises(hosts.BenchError, match=r"kind http: it failed(?s:.*)my reason(?s:.*)last words"):
        run_program(tmp_path, "raise SystemExit('my reason')")


def test_a_program_that_does_not_end_is_ended(tmp_path):
    with pytest.raises(hosts.BenchError, match=r"did not end in 0 s"):
        run_program(tmp_path, "import signal; signal.pause()", 0.2)
