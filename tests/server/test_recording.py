"""Requests are recorded by every kind of worker, over both protocols, and replayed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from pytriton.cli.replay import Replay, Tolerance
from pytriton.client import AsyncioModelClient, DecoupledModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientError, PyTritonClientInferenceServerError
from pytriton.decorators import batch
from pytriton.exceptions import PyTritonInvalidOperationError
from pytriton.inprocess import Triton as InprocessTriton
from pytriton.model_config import ModelConfig, ModelWarmup, Recording, SequenceBatcher, WarmupInput
from pytriton.recording import RecordedFiles, read
from pytriton.recording.groups import RECORD_BYTES
from pytriton.workers import Processes
from tests.server.command import Command, run
from tests.server.conftest import local_config
from tests.server.own_server import TENSORS, address
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S, wait_for, workers_of
from tests.server.worker_factories import doubling
from tests.unit.generators import count_up, count_up_async

pytestmark = pytest.mark.either_proxy

TOKEN = "t0p-token"
REQUESTS = 5_000


@batch
def double(x):
    return {"y": x * 2}


@batch
async def double_async(x):
    return {"y": x * 2}


def making(function):
    return function


POOLS = {
    "thread": double,
    "coroutine": double_async,
    "process": Processes(doubling, count=2),
    "shared process": Processes(doubling, count=2, share=True),
    "processes with a coroutine": Processes(partial(making, double_async), count=1),
}


def numbers(value, rows=1):
    return np.full((rows, 3), value, np.float32)


def replayed(path, url, **options):
    chosen = {"model": None, "version": None, "speed": np.inf, "connections": 32, "tolerance": Tolerance(), "shown": 10}
    replay = Replay(url=url, timeout_s=DEADLINE_S, access_token=None, tls=None, **{**chosen, **options})
    with RecordedFiles(path) as files:
        return asyncio.run(replay.run(files))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "day.ptr"


@pytest.mark.parametrize("kind", POOLS)
def test_requests_are_recorded_and_replayed(triton, bind, traffic, path, kind):
    model = bind(POOLS[kind], max_batch_size=8)
    traffic.infer(model, numbers(100))  # not yet
    triton.start_recording(model, Recording(path))
    with ModelClient(traffic.url, model) as client:
        for value in range(20):
            named = client.with_options(request_id=f"id-{value}")
            named.infer_batch(numbers(value, rows=1 + value % 3), parameters={"k": value, "t": "é"})
    assert triton.recording_status(model).path == str(path)
    status = triton.stop_recording(model)
    traffic.infer(model, numbers(101))  # no longer
    assert (status.recorded, status.dropped, status.too_large) == (20, 0, 0)
    found = [*read(path)]
    assert [each.id for each in found] == [f"id-{value}" for value in range(20)]
    for value, each in enumerate(found):
        assert each.inputs["x"].tolist() == numbers(value, rows=1 + value % 3).tolist()
        assert each.responses[0]["y"].tolist() == numbers(2 * value, rows=1 + value % 3).tolist()
        assert (each.model, each.version, each.parameters) == (model, 1, {"k": value, "t": "é"})
    report = replayed(path, traffic.url)
    assert (report.requests, report.different, dict(report.errors), report.is_same) == (20, 0, {}, True)
    assert triton.recording_status(model) is None


@pytest.mark.parametrize("function", [count_up, count_up_async, Processes(partial(making, count_up), count=1)])
def test_streams_are_recorded_and_replayed(triton, bind, triton_config, path, function):
    model, url = bind(function, decoupled=True, batcher=None), address(triton_config, "grpc")
    triton.start_recording(model, Recording(path))
    with DecoupledModelClient(url, model) as client:
        for count in (3, 0, 1):
            assert len([*client.infer_batch(numbers(count))]) == count
    triton.stop_recording(model)
    found = [*read(path)]
    assert [len(each.responses) for each in found] == [3, 0, 1]
    assert [each["y"][0, 0] for each in found[0].responses] == [0, 1, 2]
    assert all(each.is_streamed and not each.is_cancelled for each in found)
    report = replayed(path, url)
    assert (report.requests, report.is_same) == (3, True)


def test_errors_are_recorded_and_have_to_come_again(triton, bind, traffic, path):
    @batch
    def picky(x):
        if (x < 0).any():
            raise ValueError("below 0")
        return {"y": x}

    model = bind(picky)
    triton.start_recording(model, Recording(path))
    traffic.infer(model, numbers(1))
    with pytest.raises(PyTritonClientInferenceServerError, match="below 0"):
        traffic.infer(model, numbers(-1))
    triton.stop_recording(model)
    assert [each.error for each in read(path)] == ["", "ValueError: below 0"]
    assert replayed(path, traffic.url).is_same
    triton.rebind(model, double)
    report = replayed(path, traffic.url)
    assert (report.different, report.by_output) == (2, {"y": 1, "": 1})
    assert "it is answered, and failed before: ValueError: below 0" in {each.text for each in report.first}


def summing():
    """A callable that answers the sum of a sequence so far, and fails without its beginning."""
    sums = {}

    def add(requests):
        answers = []
        for request in requests:
            key = request.correlation_id
            before = 0.0 if request.sequence_start else sums[key]
            sums[key] = before + float(request["x"][0, 0])
            answers.append({"y": request["x"] * 0 + sums[key]})
        return answers

    return add


def test_a_sequence_keeps_its_order(triton, bind, traffic, path):
    model = bind(summing(), batcher=SequenceBatcher(), max_batch_size=4)
    triton.start_recording(model, Recording(path))
    for step in range(6):
        for key in (11, 22):
            ends = {"sequence_start": step == 0, "sequence_end": step == 5}
            traffic.infer_bare(model, {"x": numbers(step + key)}, sequence_id=key, **ends)
    triton.stop_recording(model)
    assert [each.sequence[0] for each in read(path)] == [11, 22] * 6
    for _ in range(3):
        assert replayed(path, traffic.url).is_same


@pytest.mark.parametrize("kind", ["thread", "processes"])
def test_a_share_of_the_sequences_is_replayed_from_their_beginnings(triton, bind, traffic, path, kind):
    pool = summing() if kind == "thread" else Processes(summing, count=2)
    model = bind(pool, batcher=SequenceBatcher(), max_batch_size=4)
    triton.start_recording(model, Recording(path, share=0.5))
    for first in range(1, 41, 2):
        for step in range(3):
            for key in (first, first + 1):
                ends = {"sequence_start": step == 0, "sequence_end": step == 2}
                traffic.infer_bare(model, {"x": numbers(step + key)}, sequence_id=key, **ends)
    status = triton.stop_recording(model)
    assert 0 < status.recorded < 120
    assert status.recorded % 3 == 0
    report = replayed(path, traffic.url)
    assert (report.requests, report.is_same) == (status.recorded, True)


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_differences_are_found_exactly_where_a_changed_model_was_planted(triton, bind, traffic, path):
    model = bind(double, max_batch_size=64)
    planted = set(np.random.default_rng(5).choice(REQUESTS, 37, replace=False).tolist())
    triton.start_recording(model, Recording(path, file_bytes=2**18, files=64))

    async def send():
        async with AsyncioModelClient(traffic.url, model) as client:
            values = iter(range(REQUESTS))

            async def work():
                for value in values:
                    await client.infer_batch(numbers(value))

            await asyncio.gather(*(work() for _ in range(32)))

    asyncio.run(send())
    status = triton.stop_recording(model)
    assert (status.recorded, status.dropped, status.too_large) == (REQUESTS, 0, 0)
    assert path.with_name("day.ptr.1").exists()
    assert replayed(path, traffic.url).is_same

    @batch
    def changed(x):
        y = x * 2
        for row in range(len(x)):
            if int(x[row, 0]) in planted:
                y[row, 1] += 0.5
        return {"y": y}

    triton.rebind(model, changed)
    report = replayed(path, traffic.url, shown=100)
    assert (report.requests, report.different, report.by_output) == (REQUESTS, 37, {"y": 37})
    values = [int(each.inputs["x"][0, 0]) for each in read(path)]
    assert {values[each.number] for each in report.first} == planted
    assert {each.text.partition(" at ")[2] for each in report.first} == {"[0, 1], 0.5 apart at most; 1 of 3 elements"}
    assert replayed(path, traffic.url, tolerance=Tolerance(0.0, 0.75)).is_same


def test_a_model_is_recorded_from_the_start_without_its_warm_up(triton, triton_config, path):
    warmup = ModelWarmup("zeros", 1, {"x": WarmupInput(np.float32, [3], zero_data=True)})
    config = ModelConfig(model_warmup=[warmup], record=Recording(path))
    triton.bind("from-the-start", double, *TENSORS, config=config)
    with pytest.raises(PyTritonInvalidOperationError, match="recorded already"):
        triton.start_recording("from-the-start", Recording(path.with_name("other.ptr")))
    with ModelClient(address(triton_config, "http"), "from-the-start") as client:
        client.infer_batch(numbers(7))
    triton.unbind("from-the-start")
    assert [each.inputs["x"][0, 0] for each in read(path)] == [7]


def test_a_model_whose_recording_cannot_be_written_is_not_served(triton, path):
    record = Recording(path.parent / "none" / "day.ptr")
    with pytest.raises(PyTritonInvalidOperationError, match="cannot be recorded"):
        triton.bind("unwritten", double, *TENSORS, config=ModelConfig(record=record))


def test_workers_that_are_started_again_and_added_are_recorded_too(triton, bind, traffic, path):
    model = bind(Processes(doubling, count=1))
    triton.start_recording(model, Recording(path))
    traffic.infer(model, numbers(1))
    wait_for(lambda: triton.recording_status(model).recorded == 1, "the first request to be recorded")
    (pid,) = workers_of(model)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: workers_of(model) not in ([pid], []), "another worker")
    traffic.infer(model, numbers(2))
    triton.scale(model, 2)
    for value in range(3, 10):
        traffic.infer(model, numbers(value))
    assert triton.stop_recording(model).recorded == 9
    assert [each.inputs["x"][0, 0] for each in read(path)] == [*range(1, 10)]


def test_a_worker_that_starts_between_two_recordings_leaves_out_what_the_second_does(triton, bind, traffic, path):
    model = bind(Processes(doubling, count=1))
    triton.start_recording(model, Recording(path, without=["y"]))
    (pid,) = workers_of(model)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: workers_of(model) not in ([pid], []), "another worker")
    triton.stop_recording(model)
    triton.start_recording(model, Recording(path.with_name("other.ptr"), without=["x"]))

    def is_recorded():
        traffic.infer(model, numbers(1))
        return triton.recording_status(model).recorded > 0

    wait_for(is_recorded, "a request to be recorded")
    triton.stop_recording(model)
    assert all("y" not in response for each in read(path) for response in each.responses)
    for each in read(path.with_name("other.ptr")):
        assert ([*each.inputs], [*each.responses[0]]) == ([], ["y"])


def test_remote_workers_are_recorded_at_the_server(triton, traffic, path):
    pytest.importorskip("zmq")
    from pytriton.cluster.worker import RemoteWorker, WorkerOptions
    from pytriton.workers import RemoteWorkers

    with reserved_ports(1) as (port,):
        where = f"tcp://127.0.0.1:{port}"
        worker = RemoteWorker("remote", double, WorkerOptions(where))
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            triton.bind("remote", RemoteWorkers(where), *TENSORS, config=ModelConfig(record=Recording(path)))
            for value in range(5):
                traffic.infer("remote", numbers(value, rows=2))
            triton.unbind("remote")
        finally:
            worker.leave()
            thread.join(DEADLINE_S)
    found = [*read(path)]
    assert [each.inputs["x"].tolist() for each in found] == [numbers(value, 2).tolist() for value in range(5)]
    assert [each.responses[0]["y"].tolist() for each in found] == [numbers(2 * v, 2).tolist() for v in range(5)]


def test_a_server_in_this_process_is_recorded(path):
    with InprocessTriton() as triton:
        triton.bind("m", double, *TENSORS, config=ModelConfig(record=Recording(path)))
        with triton.client("m") as client:
            client.infer_batch(numbers(3))
    assert [each.responses[0]["y"].tolist() for each in read(path)] == [numbers(6).tolist()]


PROGRAM = """
import sys
import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Recording, Tensor
from pytriton.triton import Triton, TritonConfig

http, grpc, metrics, path = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

@batch
def double(x):
    return {"y": x * 2}

config = TritonConfig(http_address="127.0.0.1", http_port=http, grpc_address="127.0.0.1", grpc_port=grpc,
                      metrics_address="127.0.0.1", metrics_port=metrics)
with Triton(config=config) as triton:
    x, y = (Tensor(name=name, shape=(-1,), dtype=np.float32) for name in "xy")
    triton.bind("m", double, [x], [y], config=ModelConfig(max_batch_size=64, record=Recording(path)))
    triton.serve()
"""


def test_a_program_that_is_killed_while_it_records_leaves_whole_requests(path, tmp_path):
    with local_config() as config:
        ports = map(str, (config.http_port, config.grpc_port, config.metrics_port))
        started = subprocess.Popen([sys.executable, "-c", PROGRAM, *ports, str(path)], env={**os.environ})
        try:
            url = address(config, "http")

            async def send():
                async with AsyncioModelClient(url, "m") as client:
                    await client.wait_for_model(DEADLINE_S)

                    async def work():
                        with suppress(PyTritonClientError):
                            while True:
                                await client.infer_batch(np.random.default_rng().random((1, 50), np.float32))

                    tasks = [asyncio.ensure_future(work()) for _ in range(16)]
                    while path.stat().st_size < 10**6:
                        await asyncio.sleep(0.01)
                    started.kill()
                    await asyncio.gather(*tasks)

            asyncio.run(send())
        finally:
            started.kill()
            started.wait(DEADLINE_S)
        with RecordedFiles(path) as files:
            found = [*files]
            assert all("ends within a record" in note for note in files.notes)
    assert len(found) > 1000
    assert all((each.responses[0]["y"] == each.inputs["x"] * 2).all() for each in found)
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.truncate(size - 2 * RECORD_BYTES)  # of which the end may have cut one already
    with RecordedFiles(path) as files:
        assert 0 < len([*files]) < len(found)


@pytest.fixture
def served(tmp_path):
    """The command that serves a typed function, with its app, and the folder that it runs in."""
    (tmp_path / "models.py").write_text("def half(x: float) -> float:\n    return x / 2\n")
    recordings = tmp_path / "recordings"
    recordings.mkdir()
    home = tmp_path / "home"
    home.mkdir()
    with reserved_ports(4) as (http, grpc, metrics, rest), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTRITON_RECORDINGS", str(recordings))
        patch.setenv("PYTRITON_ACCESS_TOKEN", TOKEN)
        ports = [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}", f"--rest-port={rest}"]
        command = Command(home, "serve", "models:half", f"--app-dir={tmp_path}", "--address=127.0.0.1", *ports)
        try:
            command.wait_for("app at http")
            yield command, recordings, f"http://127.0.0.1:{http}", f"http://127.0.0.1:{rest}"
        finally:
            with suppress(AssertionError):
                command.end()
            command.kill()


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_a_running_server_is_recorded_and_replayed_from_the_command_line(served, tmp_path):
    _, recordings, url, app = served
    path = recordings / "day.ptr"
    with ModelClient(url, "half") as client:
        assert client.call(8.0) == 4.0
        for refused in ({"PYTRITON_ACCESS_TOKEN": "wrong"}, {"PYTRITON_ACCESS_TOKEN": ""}):
            done = run("record", app, "--model", "half", "-o", "day.ptr", **refused)
            assert (done.returncode, path.exists()) == (1, False)
        for name in ("../day.ptr", "/tmp/day.ptr", "day.txt", ".ptr", "a/b.ptr", "day.ptr\n"):
            done = run("record", app, "--model", "half", "-o", name)
            assert (done.returncode, "without folders" in done.stderr) == (1, True)
        assert "is not bound" in run("record", app, "--model", "other", "-o", "day.ptr").stderr
        started = run("record", app, "--model", "half", "-o", "day.ptr")
        assert (started.returncode, str(path) in started.stdout) == (0, True)
        for number in range(20):
            assert client.call(float(number)) == number / 2
        assert "recorded already" in run("record", url, "--model", "half", "-o", "other.ptr").stderr
    told = run("record", url, "--model", "half", "--stop")  # the HTTP port has the app's routes too
    assert "20 requests recorded" in told.stdout
    assert path.stat().st_mode & 0o777 == 0o600
    assert "exists" in run("record", app, "--model", "half", "-o", "day.ptr").stderr
    assert "is not recorded" in run("record", app, "--model", "half").stdout

    figures = tmp_path / "report.json"
    done = run("replay", str(path), url, "--speed", "max", "--json", str(figures))
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(figures.read_text())
    assert (report["requests"], report["different"], report["errors"]) == (20, 0, {})
    assert report["latency_ms"]["p50"] > 0 < report["recorded_ms"]["p50"]
    assert run("replay", str(path), url.replace("http", "grpc").replace(url.rpartition(":")[2], "1")).returncode == 1


@pytest.mark.thorough
def test_a_changed_program_is_found_from_the_command_line(served, tmp_path):
    command, recordings, url, app = served
    run("record", app, "--model", "half", "-o", "day.ptr")
    with ModelClient(url, "half") as client:
        for number in range(10):
            client.with_options(request_id=f"request-{number}").call(float(number))
    run("record", app, "--model", "half", "--stop")
    assert command.end() == 0
    (tmp_path / "models.py").write_text("def half(x: float) -> float:\n    return 99.0 if x == 7 else x / 2\n")
    home = tmp_path / "second"
    home.mkdir()
    with reserved_ports(3) as ports:
        options = [f"--{name}-port={port}" for name, port in zip(("http", "grpc", "metrics"), ports, strict=True)]
        again = Command(home, "serve", "models:half", f"--app-dir={tmp_path}", "--address=127.0.0.1", *options)
        try:
            url = f"http://127.0.0.1:{ports[0]}"
            with ModelClient(url, "half") as client:
                client.wait_for_model(DEADLINE_S)
            done = run("replay", str(recordings / "day.ptr"), url, "--speed", "1000")
            assert done.returncode == 1
            (line,) = [each for each in done.stdout.splitlines() if each.startswith("request ")]
            assert line.startswith("request 7 (id request-7), ")
            assert again.end() == 0
        finally:
            again.kill()
