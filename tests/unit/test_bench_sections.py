"""What a round of clients, of streams and of churn makes of what its hosts and programs do."""

import signal
import subprocess
import sys

import client_churn
import client_programs
import client_rounds
import pytest
import rounds
import sections
import stream_rounds
import string_rounds
import systems
import worker_hosts
import worker_kills
from tally import Result

OURS, RAW, PEER = (systems.System(name, [sys.executable], {}, {}) for name in ("ours", "raw", "peer"))
TIMING = rounds.Timing(0.1, 0)
CLIENT, BARE = (
    {"generator": name, "requests": 9, "answered": 9, "errors": 0, "requests_per_s": 9, "p90_us": 1, "p99_us": 1}
    for name in ("pytriton", "tritonclient")
)
PRINTED = {
    "blocking_load.py": {"pytriton": {**CLIENT, "p50_us": 11}, "tritonclient": {**BARE, "p50_us": 10}},
    "asyncio_load.py": {**CLIENT, "p50_us": 11, "client_cpu_us": 5},
    "stream_load.py": {
        "streams": 2,
        "responses": 1500,
        "responses_per_s": 1000,
        "first_p50_us": 1,
        "first_p99_us": 2,
        "client_cpu_us": 3,
    },
    "churn_load.py": {
        "before": {"threads": 2, "sockets": 3, "rss_bytes": 1 << 20},
        "after": {"threads": 4, "sockets": 5, "rss_bytes": 2 << 20},
        "client_ms": 7,
    },
}


class Host:
    """A host without processes."""

    left: tuple[str, ...] = ()

    def __init__(self, system, folder, models=("double",)): ...

    def __enter__(self):
        return self

    def __exit__(self, *_): ...

    def wait_first_answer(self): ...

    def family(self):
        return []

    def stop(self):
        return 0.1

    def left_behind(self):
        return list(self.left)

    def target(self, protocol):
        return systems.Target(1, "double")

    def tail(self):
        return "the host's last words"


class Programs:
    """Programs that print :data:`PRINTED`, but for those that fail, each ``(script, caller)``."""

    def __init__(self, *failing):
        self._failing, self.ran = failing, []

    def __call__(self, host, caller, script, protocol, model, timeout_s, **options):
        self.ran.append((script, caller.name, protocol))
        if (script, caller.name) in self._failing:
            raise systems.BenchError(f"{script} failed")
        return {**PRINTED[script]}


@pytest.fixture
def programs(monkeypatch):
    """``programs(*failing)`` puts them, and hosts without processes, in the place of the real ones."""

    def put(*failing, host=Host):
        found = Programs(*failing)
        monkeypatch.setattr(rounds, "IDLE_S", 0)
        for module in (client_churn, client_rounds, stream_rounds):
            monkeypatch.setattr(module, "Host", host)
            monkeypatch.setattr(module, "run_client", found)
        return found

    return put


def by_system(found):
    return {each.system: each for each in found}


def measure_clients(folder, callers=(OURS, PEER)):
    return by_system(client_rounds.measure_clients(OURS, callers, 1, TIMING, folder, lambda _: None))


def measure_streams(system, folder, callers=()):
    return stream_rounds.measure_streams(system, OURS, callers, 1, TIMING, folder, lambda _: None)


def test_clients_are_measured_with_both_protocols_and_compared_with_tritonclient(programs, tmp_path):
    programs()
    found = measure_clients(tmp_path)
    blocking = "ModelClient, http 1 x 64 B"
    assert found["ours"].values.keys() == found["peer"].values.keys()
    assert len(found["ours"].values) == 4
    assert found["ours"].values[blocking]["p50 / tritonclient's"] == pytest.approx(1.1)
    assert found["tritonclient"].values[blocking]["p50 us"] == 10
    assert found["peer"].values["AsyncioModelClient, grpc 64 x 64 B"]["client CPU us"] == 5


def test_tritonclient_is_the_one_of_our_process(programs, tmp_path):
    programs()
    assert measure_clients(tmp_path, callers=[PEER])["tritonclient"].values == {}


def test_a_client_that_fails_is_a_problem_of_its_system_alone(programs, tmp_path):
    programs(("asyncio_load.py", "peer"))
    found = measure_clients(tmp_path)
    assert found["peer"].problems == ["asyncio_load.py failed"] * 2
    assert found["ours"].problems == []
    assert (len(found["ours"].values), len(found["peer"].values)) == (4, 2)


def test_errors_of_calls_are_problems(programs, tmp_path, monkeypatch):
    programs()
    monkeypatch.setitem(PRINTED, "asyncio_load.py", {**PRINTED["asyncio_load.py"], "errors": 3})
    assert measure_clients(tmp_path)["peer"].problems == [
        "AsyncioModelClient, http 64 x 64 B: 3 errors",
        "AsyncioModelClient, grpc 64 x 64 B: 3 errors",
    ]


def test_what_the_server_leaves_behind_is_a_problem_of_ours(programs, tmp_path):
    class Leaving(Host):
        left = ("file left: x",)

    programs(host=Leaving)
    found = measure_clients(tmp_path)
    assert (found["ours"].problems, found["peer"].problems) == (["file left: x"], [])


def test_a_server_that_does_not_start_is_a_problem_of_ours(programs, tmp_path):
    class Dead(Host):
        def wait_first_answer(self):
            raise systems.BenchError("no answer")

    ran = programs(host=Dead).ran
    assert measure_clients(tmp_path)["ours"].problems == ["no answer"]
    assert ran == []


def test_each_server_is_measured_with_our_tritonclient(programs, tmp_path):
    ran = programs().ran
    (found,) = measure_streams(PEER, tmp_path)
    assert ran == [("stream_load.py", "ours", "grpc")]
    assert found.system == "peer"
    assert found.values[stream_rounds.SERVER_TITLE]["responses/s"] == 1000


def test_clients_of_streams_are_measured_beside_the_server(programs, tmp_path):
    programs()
    server, ours, peer = measure_streams(OURS, tmp_path, [OURS, PEER])
    assert list(server.values) == [stream_rounds.SERVER_TITLE]
    assert list(ours.values) == list(peer.values) == [stream_rounds.CLIENT_TITLE]
    assert (ours.system, peer.system) == ("ours", "peer")


def test_a_client_of_streams_that_fails_leaves_the_others_measured(programs, tmp_path):
    programs(("stream_load.py", "peer"))
    server, peer, ours = measure_streams(OURS, tmp_path, [PEER, OURS])
    assert (server.problems, peer.problems, ours.problems) == ([], ["stream_load.py failed"], [])
    assert (peer.values, len(ours.values)) == ({}, 1)


def test_the_streams_of_a_server_that_fails_are_its_problem(programs, tmp_path):
    programs(("stream_load.py", "ours"))
    (found,) = measure_streams(RAW, tmp_path)
    assert (found.system, found.values, found.problems) == ("raw", {}, ["stream_load.py failed"])


def test_churn_has_a_census_before_and_after_for_each_kind(programs, tmp_path):
    programs()
    found = client_churn.count_churn(OURS, 50, tmp_path, lambda _: None)
    assert len(found.values) == len(client_churn.KINDS)
    assert found.values["50 x DecoupledModelClient, grpc"] == {
        "threads before": 2,
        "sockets before": 3,
        "RSS before, MiB": 1.0,
        "threads after": 4,
        "sockets after": 5,
        "RSS after, MiB": 2.0,
        "ms per client": 7,
    }


def test_churn_that_fails_is_a_problem(programs, tmp_path):
    programs(("churn_load.py", "ours"))
    found = client_churn.count_churn(OURS, 50, tmp_path, lambda _: None)
    assert (found.values, found.problems) == ({}, ["churn_load.py failed"] * len(client_churn.KINDS))


def test_streams_are_measured_of_each_system_and_of_clients_on_ours(programs, tmp_path):
    ran = programs().ran
    plan = sections.Plan([OURS, RAW, PEER], 2, TIMING, 1, tmp_path, lambda _: None)
    found = sections.SECTIONS["streams"](plan)
    servers = [each.system for each in found if stream_rounds.SERVER_TITLE in each.values]
    clients = [each.system for each in found if stream_rounds.CLIENT_TITLE in each.values]
    assert servers == ["ours", "raw", "peer", "raw", "peer", "ours"]
    assert clients == ["ours", "peer", "peer", "ours"]
    assert len(ran) == 10


@pytest.fixture
def loads(monkeypatch):
    """Put loads that all answer in the place of the real ones, but on the named systems; lists ``(system, title)``."""

    def put(*failing):
        def load(host, case, timing, result, say):
            ran.append((result.system, case.title))
            if result.system in failing:
                raise systems.BenchError(f"{case.title} failed")
            result.values[case.title] = {"requests/s": 1}

        ran = []
        monkeypatch.setattr(rounds, "IDLE_S", 0)
        monkeypatch.setattr(string_rounds, "Host", Host)
        monkeypatch.setattr(string_rounds, "measure_load", load)
        return ran

    return put


def test_strings_are_measured_of_each_system_in_each_round(loads, tmp_path):
    ran = loads()
    found = sections.SECTIONS["strings"](sections.Plan([OURS, RAW], 2, TIMING, 1, tmp_path, lambda _: None))
    assert [(each.system, each.number) for each in found] == [("ours", 1), ("raw", 1), ("raw", 2), ("ours", 2)]
    assert ran == [(each.system, case.title) for each in found for case in string_rounds.STRINGS]
    assert all(len(each.values) == 4 and not each.problems for each in found)


def test_a_load_of_strings_that_fails_ends_the_round_of_its_system_alone(loads, tmp_path):
    loads("raw")
    found = sections.SECTIONS["strings"](sections.Plan([OURS, RAW], 1, TIMING, 1, tmp_path, lambda _: None))
    assert by_system(found)["raw"].problems == ["http 1 x 1000 strings failed"]
    assert len(by_system(found)["ours"].values) == 4


@pytest.fixture
def own_child():
    """A process that may be killed."""
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as child:
        yield child
        child.kill()


class ReadyHost(Host):
    """Says once more at each look that a worker is ready."""

    def __init__(self, *arguments):
        self.said = 0

    def output(self):
        self.said += 1
        return "is ready after" * self.said


@pytest.fixture
def counts(monkeypatch, own_child):
    """Has the kill of a worker see these counts of answers, each with its moment."""

    def put(*seen):
        looks = iter(seen)

        def look(counter, host):
            counter.at_s, counter.answered = next(looks)

        monkeypatch.setattr(worker_kills._Count, "__init__", look)

    loads = iter([100, 190, 200, 110, *[50] * 100])
    for name, stand_in in {
        "Host": ReadyHost,
        "start_load": lambda *_: None,
        "read_load": lambda *_: Result("wrk", 9, 9, 0, next(loads), 400, 500, 600),
        "workers_of": lambda host: [own_child.pid],
        "IDLE_S": 0,
        "LEAD_S": 0,
    }.items():
        for module in (worker_hosts, worker_kills):
            monkeypatch.setattr(module, name, stand_in, raising=False)
    return put


def test_workers_are_measured_beside_what_they_are_compared_with(counts, tmp_path, own_child):
    counts((0, 0), (1, 100), (3, 250))  # 50 of 200 are missing, which is the work of one worker in 1 s
    (found,) = sections.SECTIONS["workers"](sections.Plan([OURS], 1, TIMING, 1, tmp_path, lambda _: None))
    assert found.problems == []
    assert found.values["a callable of Python alone"]["2 workers / 1"] == 195 / 105  # the means of there and back
    assert len(found.values) == 7
    assert found.values["one of two workers is killed"]["one worker's seconds lost"] == 1
    assert own_child.wait() == -signal.SIGKILL


def test_clients_call_the_server_of_ours_whose_proxy_was_chosen(tmp_path):
    other = systems.System("python-proxy", [sys.executable], {}, {})
    plan = sections.Plan([other, RAW, OURS, PEER], 1, TIMING, 1, tmp_path, lambda _: None)
    assert plan.ours is OURS
    assert plan.callers == [OURS, PEER]


def test_each_round_of_clients_begins_with_another(programs, tmp_path):
    ran = programs().ran
    sections.SECTIONS["clients"](sections.Plan([OURS, RAW, PEER], 2, TIMING, 1, tmp_path, lambda _: None))
    assert [caller for script, caller, _ in ran if script == "asyncio_load.py"] == [
        *("ours", "peer", "ours", "peer"),
        *("peer", "ours", "peer", "ours"),
    ]


def test_a_program_gets_its_options_and_its_line_of_json_is_read(tmp_path, monkeypatch):
    (tmp_path / "program.py").write_text("import json, sys; print(json.dumps({'got': sys.argv[1:]}))")
    monkeypatch.setattr(client_programs, "_FOLDER", tmp_path)
    found = client_programs.run_client(Host(OURS, None), OURS, "program.py", "http", "m", 60, in_flight=3)
    assert found == {"got": ["http", "--port=1", "--model=m", "--in-flight=3"]}


def test_a_program_that_fails_is_quoted_with_its_host(tmp_path, monkeypatch):
    (tmp_path / "program.py").write_text("raise SystemExit('my reason')")
    monkeypatch.setattr(client_programs, "_FOLDER", tmp_path)
    with pytest.raises(systems.BenchError, match=r"program\.py of ours, http(?s:.*)my reason(?s:.*)last words"):
        client_programs.run_client(Host(OURS, None), OURS, "program.py", "http", "m", 60)


def test_a_program_that_does_not_end_is_ended(tmp_path, monkeypatch):
    (tmp_path / "program.py").write_text("import signal; signal.pause()")
    monkeypatch.setattr(client_programs, "_FOLDER", tmp_path)
    with pytest.raises(systems.BenchError, match=r"did not end in 0 s"):
        client_programs.run_client(Host(OURS, None), OURS, "program.py", "http", "m", 0.2)
