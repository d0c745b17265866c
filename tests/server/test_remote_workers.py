"""Workers that connect from elsewhere: real ``pytriton worker`` processes, over TCP and Unix sockets."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput

from pytriton.client import DecoupledModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientError, PyTritonClientInferenceServerError
from pytriton.exceptions import PyTritonBadParameterError, PyTritonValidationError, PyTritonWorkerError
from pytriton.model_config import ModelConfig, OldestStrategy, SequenceBatcher, Tensor
from pytriton.pool.resources import memory_of
from pytriton.triton import Triton
from pytriton.workers import RayWorkers, RemoteWorkers
from tests.server.conftest import local_config
from tests.server.ports import reserved_ports
from tests.server.processes import command_line, descendants, wait_for
from tests.server.traffic import pending_requests

prometheus_client = pytest.importorskip("prometheus_client")
zmq = pytest.importorskip("zmq")
from pytriton.cluster.keys import make_keys  # noqa: E402
from pytriton.cluster.messages import PROTOCOL  # noqa: E402

HERE = Path(__file__).parent
X = np.ones((1, 4), np.float32)
GROWTH_BYTES = 64 << 20


def tensors(shape, dtype):
    return {
        "inputs": [Tensor(name="x", shape=shape, dtype=dtype)],
        "outputs": [Tensor(name="y", shape=shape, dtype=dtype)],
    }


VECTOR = tensors((-1,), np.float32)


@pytest.fixture(scope="module")
def triton():
    with local_config() as config, Triton(config=config) as server:
        server.url = f"http://127.0.0.1:{config.http_port}"
        server.grpc = f"grpc://127.0.0.1:{config.grpc_port}"
        server.metrics = f"http://127.0.0.1:{config.metrics_port}/metrics"
        yield server


@pytest.fixture
def address():
    with reserved_ports(1) as (port,):
        yield f"tcp://127.0.0.1:{port}"


@pytest.fixture
def workers(tmp_path, address):
    """Starts workers: ``workers("double=make_double")``."""
    started = []

    def start(*factories, **options):
        arguments = [f"{model}=remote_models:{factory}" for model, factory in (each.split("=") for each in factories)]
        arguments += [f"--{name.replace('_', '-')}={value}" for name, value in {"connect": address, **options}.items()]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytriton", "worker", *arguments, f"--app-dir={HERE}", "--heartbeat=1.0"],
            env={**os.environ, "REMOTE_TEST_FOLDER": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def bound(triton, name, remote, described=VECTOR, **config):
    triton.bind(name, remote, **described, config=ModelConfig(**{"max_batch_size": 16, **config}))
    try:
        yield
    finally:
        triton.unbind(name)


def infer(triton, name, x=X, **options):
    with ModelClient(triton.url, name, inference_timeout_s=60) as client:
        return client.infer_batch(x, **options)["y"]


@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
def test_a_worker_answers_small_and_large_batches(triton, workers, address, tmp_path, scheme):
    if scheme == "ipc":
        address = f"ipc://{tmp_path}/socket"
    workers("double=make_double", connect=address)
    with bound(triton, "double", RemoteWorkers(address)):
        for size in (1, 100, 10_000, 1_000_000):
            x = np.arange(size, dtype=np.float32)[None]
            np.testing.assert_array_equal(infer(triton, "double", x), x * 2)
        with ThreadPoolExecutor(8) as pool:
            rows = [np.full((1 + number % 3, 4), number, np.float32) for number in range(64)]
            for x, y in zip(rows, pool.map(lambda x: infer(triton, "double", x), rows), strict=True):
                np.testing.assert_array_equal(y, x * 2)


def test_a_coroutine_that_exits_or_stops_its_loop_fails_its_own_request_alone(triton, workers, address):
    process = workers("leaving=make_leaving")
    with bound(triton, "leaving", RemoteWorkers(address)):
        with pytest.raises(PyTritonClientInferenceServerError, match="SystemExit: 3"):
            infer(triton, "leaving", np.ones((1, 4), np.float32))
        for value in (2, 3):
            assert infer(triton, "leaving", np.full((1, 4), value, np.float32))[0, 0] == 2 * value
        assert process.poll() is None


def test_texts_written_inputs_errors_and_coroutines(triton, workers, address):
    workers("texts=make_texts", "writing=make_writing", "failing=make_failing", "waiting=make_waiting")
    remote = RemoteWorkers(address)
    with (
        bound(triton, "texts", remote, tensors((1,), bytes)),
        bound(triton, "writing", remote),
        bound(triton, "failing", remote),
        bound(triton, "waiting", remote),
    ):
        assert infer(triton, "texts", np.array([["größe".encode()]], object)).tolist() == [["GRÖSSE".encode()]]
        np.testing.assert_array_equal(infer(triton, "writing"), X * 2)
        np.testing.assert_array_equal(infer(triton, "waiting"), X * 2)
        np.testing.assert_array_equal(infer(triton, "failing"), X * 2)
        with pytest.raises(PyTritonClientInferenceServerError, match="negative"):
            infer(triton, "failing", -X)


def test_streams_arrive_in_order_and_end_with_their_client(triton, workers, address, tmp_path):
    workers("counting=make_counting")
    with bound(triton, "counting", RemoteWorkers(address), tensors((1,), np.float32), batching=False, decoupled=True):
        with DecoupledModelClient(triton.grpc, "counting") as client:
            got = [int(answer["y"][0]) for answer in client.infer_sample(np.array([1000], np.float32))]
            assert got == [*range(1000)]
        with DecoupledModelClient(triton.grpc, "counting") as client:
            answers = client.infer_sample(np.array([1_000_000], np.float32))
            assert int(next(answers)["y"][0]) == 0
            answers.close()
        wait_for((tmp_path / "closed").exists, "the generator to be closed")


def test_coroutines_and_streams_of_a_worker_run_at_the_same_time(triton, workers, address):
    workers("meeting=make_meeting", "streams=make_meeting_streams")
    remote, described, count = RemoteWorkers(address), tensors((1,), np.float32), np.array([12], np.float32)
    with (
        bound(triton, "meeting", remote, described, batching=False),
        bound(triton, "streams", remote, described, batching=False, decoupled=True),
        ThreadPoolExecutor(12) as pool,
    ):

        def call(_):
            with ModelClient(triton.url, "meeting", inference_timeout_s=60) as client:
                return client.infer_sample(count)["y"].item()

        def stream(_):
            with DecoupledModelClient(triton.grpc, "streams", inference_timeout_s=60) as client:
                return [answer["y"].item() for answer in client.infer_sample(count)][-1]

        assert [*pool.map(call, range(12))] == [*pool.map(stream, range(12))] == [24] * 12


def test_requests_wait_in_the_server_while_a_slow_worker_is_busy(triton, workers, address, tmp_path):
    """There they can be merged."""
    workers("slow=make_slow")
    with bound(triton, "slow", RemoteWorkers(address)), ThreadPoolExecutor(7) as pool:
        infer(triton, "slow")
        (tmp_path / "hold").touch()
        answers = [pool.submit(infer, triton, "slow")]
        wait_for((tmp_path / "held").exists, "the callable to be busy")
        answers += [pool.submit(infer, triton, "slow") for _ in range(6)]
        # But for one that is sent ahead where messages take long beside the callable, as on a busy machine.
        wait_for(lambda: pending_requests(triton.metrics, "slow") >= 5, "the others to wait in the server")
        (tmp_path / "hold").unlink()
        for answer in answers:
            np.testing.assert_array_equal(answer.result(), X * 2)


def test_a_batch_that_no_callable_got_goes_to_another_worker_and_one_that_was_got_fails(
    triton, workers, address, tmp_path
):
    first = workers("gated=make_gated", device="cuda:7")
    remote = RemoteWorkers(address, batches_in_flight=4)
    with bound(triton, "gated", remote, max_batch_size=1), ThreadPoolExecutor(4) as pool:
        got = pool.submit(infer, triton, "gated")
        wait_for((tmp_path / f"entered-{first.pid}").exists, "the first batch to be taken")
        others = [pool.submit(infer, triton, "gated") for _ in range(2)]
        second = workers("gated=make_gated")
        wait_for((tmp_path / f"entered-{second.pid}").exists, "the second worker to take a batch", 60)
        told = {
            (each.name, each.model, each.pid, each.host, each.state, each.batches, each.device, each.package)
            for each in triton.worker_status()
        }
        host, package = socket.gethostname(), version("pytriton")
        assert told == {
            (f"gated on {host}, process {pid}", "gated", pid, host, "ready", batches, device, package)
            for pid, batches, device in ((first.pid, 2, "cuda:7"), (second.pid, 1, ""))
        }
        first.kill()
        with pytest.raises(PyTritonClientError, match="was lost while it answered"):
            got.result()
        (tmp_path / "open").touch()
        for other in others:
            np.testing.assert_array_equal(other.result(), X * 2)


def test_a_worker_tells_its_memory_again_and_again(triton, workers, address):
    process = workers("growing=make_growing")

    def told():
        (status,) = triton.worker_status("growing")
        return status.private_bytes or 0, status.pss_bytes or 0

    with bound(triton, "growing", RemoteWorkers(address)):
        wait_for(lambda: told()[0], "it to tell its memory")
        private, proportional = told()
        assert 0 < private <= proportional
        assert abs(private - memory_of(process.pid)[0]) < GROWTH_BYTES / 2
        infer(triton, "growing", np.full((1, 1), GROWTH_BYTES, np.float32))
        wait_for(lambda: told()[0] > private + GROWTH_BYTES / 2, "it to tell of what it has loaded since")


def test_a_batch_of_an_idempotent_model_is_repeated(triton, workers, address, tmp_path):
    first = workers("gated=make_gated")
    with bound(triton, "gated", RemoteWorkers(address, idempotent=True)), ThreadPoolExecutor(1) as pool:
        got = pool.submit(infer, triton, "gated")
        wait_for((tmp_path / f"entered-{first.pid}").exists, "the batch to be taken")
        first.kill()
        (tmp_path / "open").touch()
        workers("gated=make_gated")
        np.testing.assert_array_equal(got.result(), X * 2)


def test_workers_join_and_leave_under_load_without_a_failed_request(triton, workers, address):
    oldest = workers("process=make_process")
    with bound(triton, "process", RemoteWorkers(address)):
        running, seen, failed = threading.Event(), set(), []
        running.set()

        def call():
            with ModelClient(triton.url, "process") as client:
                while running.is_set():
                    try:
                        seen.add(int(client.infer_batch(X)["y"][0, 0]))
                    except PyTritonClientError as error:
                        failed.append(error)
                        return

        callers = [threading.Thread(target=call) for _ in range(4)]
        for caller in callers:
            caller.start()
        try:
            for _ in range(3):
                newest = workers("process=make_process")
                wait_for(lambda newest=newest: newest.pid in seen or failed, "the new worker to answer", 60)
                oldest.send_signal(signal.SIGTERM)
                output, _ = oldest.communicate(timeout=60)
                assert oldest.returncode == 0, output
                oldest = newest
        finally:
            running.clear()
            for caller in callers:
                caller.join()
        assert not failed
        assert len(seen) == 4


def test_a_sequence_stays_with_its_worker(triton, workers, address):
    started = [workers("places=make_places"), workers("places=make_places")]
    described = {
        "inputs": [Tensor(name="x", shape=(1,), dtype=np.float32)],
        "outputs": [Tensor(name="y", shape=(2,), dtype=np.float64)],
    }
    remote = RemoteWorkers(address, min_workers=2, instances=2)

    def run(number):
        x = InferInput("x", [1, 1], "FP32")
        x.set_data_from_numpy(np.array([[number]], np.float32))
        answers = []
        with InferenceServerClient(triton.url.removeprefix("http://")) as client:
            for step in range(5):
                flags = {"sequence_id": number, "sequence_start": step == 0, "sequence_end": step == 4}
                answers.append(tuple(client.infer("places", [x], **flags).as_numpy("y")[0].astype(int)))
        return answers

    batcher = SequenceBatcher(strategy=OldestStrategy(max_candidate_sequences=4))
    with bound(triton, "places", remote, described, batcher=batcher), ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(run, range(1, 9))]
    for answer in answers:
        assert [step for _, step in answer] == [1, 2, 3, 4, 5]
        assert len({process for process, _ in answer}) == 1
    assert {process for answer in answers for process, _ in answer} == {process.pid for process in started}


@pytest.mark.parametrize(
    "bad", [[b"taken", b"no number"], [b"ready", b'{"credits": Infinity}'], [b"report", b"[]"], [b"hello", b"[]"]]
)
def test_a_worker_that_sends_nonsense_is_refused_and_harms_no_other(triton, workers, address, bad):
    hello = {"protocol": PROTOCOL, "package": "0", "model": "double", "version": None, "host": "h", "process": 1}
    with (
        bound(triton, "double", RemoteWorkers(address, min_workers=0)),
        zmq.Context() as context,
        context.socket(zmq.DEALER) as peer,
    ):
        peer.setsockopt(zmq.LINGER, 0)
        peer.connect(address)
        peer.send_multipart([b"hello", json.dumps(hello).encode()])
        peer.send_multipart([b"ready", json.dumps({"credits": 10**12, "is_concurrent": True, "callees": []}).encode()])
        peer.send_multipart(bad)
        peer.setsockopt(zmq.RCVTIMEO, 30_000)
        wait_for(lambda: b"cannot be read" in b"".join(peer.recv_multipart()), "the refusal")
        workers("double=make_double")
        np.testing.assert_array_equal(infer(triton, "double"), X * 2)


def test_without_a_worker_requests_wait_and_then_fail(triton, workers, address):
    remote = RemoteWorkers(address, min_workers=0, worker_timeout_s=0.5)
    no_worker = pytest.raises(PyTritonClientError, match="model 'double' has no worker")
    with bound(triton, "double", remote), no_worker:
        infer(triton, "double")
    with bound(triton, "double", RemoteWorkers(address, min_workers=0)), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(infer, triton, "double")
        workers("double=make_double")
        np.testing.assert_array_equal(waiting.result(), X * 2)


def test_without_a_worker_no_request_waits_for_the_failure_of_another_one(triton, address):
    remote = RemoteWorkers(address, min_workers=0, worker_timeout_s=4)
    with bound(triton, "double", remote, batching=False), ThreadPoolExecutor(8) as pool:

        def call(_):
            with ModelClient(triton.url, "double", inference_timeout_s=20) as client:
                client.infer_sample(X[0])

        for done in [pool.submit(call, number) for number in range(8)]:
            with pytest.raises(PyTritonClientError, match="model 'double' has no worker"):
                done.result()


def test_the_tensors_of_a_typed_function_come_from_the_first_worker(triton, workers, address):
    workers("typed=make_typed", "untyped=make_failing")
    remote = RemoteWorkers(address)
    with pytest.raises(PyTritonValidationError, match=r"'untyped' cannot be derived: .*has no annotation"):
        triton.bind("untyped", remote)
    with pytest.raises(PyTritonValidationError, match="which take no example"):
        triton.bind("typed", remote, example={"text": "a", "times": 1})
    triton.bind("typed", remote)
    with ModelClient(triton.url, "typed") as client:
        assert client.call(text="ab", times=2) == "abab"
    with pytest.raises(PyTritonValidationError, match="start workers with the new ones"):
        triton.rebind("typed", remote)
    triton.unbind("typed")


def test_the_calls_of_remote_workers_are_counted_here(triton, workers, address, tmp_path):
    registry = prometheus_client.CollectorRegistry()
    workers("failing=make_failing")
    gated = workers("gated=make_gated")

    def value(model, name, **labels):
        return registry.get_sample_value(f"pytriton_{name}", {"model": model, "version": "1", **labels})

    remote = RemoteWorkers(address)
    with bound(triton, "failing", remote), bound(triton, "gated", remote), ThreadPoolExecutor(1) as pool:
        triton.serve_metrics(0, registry=registry)
        for x in (X, np.repeat(X, 3, 0)):
            infer(triton, "failing", x)
        with pytest.raises(PyTritonClientInferenceServerError, match="negative"):
            infer(triton, "failing", -X)
        wait_for(lambda: value("failing", "callable_seconds_count") == 3, "the reports")
        assert value("failing", "batch_rows_sum") == 5
        assert value("failing", "failed_requests_total", error="PyTritonRequestError") == 1
        assert value("failing", "in_flight_batches") == value("failing", "waiting_batches") == 0

        lost = pool.submit(infer, triton, "gated")
        wait_for(lambda: value("gated", "in_flight_batches") == 1, "the batch to be reported")
        gated.kill()
        with pytest.raises(PyTritonClientError, match="was lost while it answered"):
            lost.result()
        assert value("gated", "failed_requests_total", error="WorkerDied") == 1
        assert value("gated", "in_flight_batches") == 0


def is_stub_of(model, command):
    return "stub" in command[0] and any(f"/{model}/" in argument for argument in command)


def test_a_proxy_that_takes_no_replies_does_not_delay_other_models(triton, workers, address):
    """The stream's client reads, but its proxy is stopped while it has more replies than its socket holds.

    It is stopped again and again, as Triton takes a stub that is silent for a second for dead.
    """
    workers("wide=make_wide", "double=make_double")
    remote = RemoteWorkers(address)
    stream = tensors((-1,), np.float32)
    with (
        bound(triton, "wide", remote, stream, batching=False, decoupled=True, proxy="python"),
        bound(triton, "double", remote, proxy="native"),
        DecoupledModelClient(triton.grpc, "wide") as client,
    ):
        (stub,) = (pid for pid in descendants(os.getpid()) if is_stub_of("wide", command_line(pid)))
        answers = client.infer_sample(np.array([200], np.float32))
        first = next(answers)["y"]
        for _ in range(50):
            os.kill(stub, signal.SIGSTOP)
            try:
                np.testing.assert_array_equal(infer(triton, "double"), X * 2)
            finally:
                os.kill(stub, signal.SIGCONT)
        got = [first, *(answer["y"] for answer in answers)]
        assert [int(y[0]) for y in got] == [*range(200)]


def test_a_start_without_enough_workers_says_how_to_start_them(triton, address):
    message = r"0 of 1 workers of model 'alone' joined .*, within 0.2 s; start them with: pytriton worker"
    with pytest.raises(PyTritonWorkerError, match=message):
        triton.bind("alone", RemoteWorkers(address, start_timeout_s=0.2), **VECTOR)


def test_a_worker_of_another_model_is_refused_with_a_reason_on_both_sides(triton, workers, address, caplog):
    with bound(triton, "double", RemoteWorkers(address, min_workers=0)):
        stranger = workers("stranger=make_double")
        wait_for(lambda: "refused a worker of model 'stranger'" in caplog.text, "the refusal", 60)
        said = next(line for line in stranger.stdout if "refused" in line)  # before the socket that it came from ends
    with bound(triton, "stranger", RemoteWorkers(address)):  # it has not given up
        np.testing.assert_array_equal(infer(triton, "stranger"), X * 2)
    stranger.send_signal(signal.SIGTERM)
    stranger.communicate(timeout=60)
    assert stranger.returncode == 0
    assert "no such model listens here; there is: double (version 1)" in said


def test_a_worker_joins_again_when_the_server_has_been_started_again(workers, address):
    worker = workers("double=make_double")
    for _ in range(2):
        with local_config() as config, Triton(config=config) as triton:
            triton.url = f"http://127.0.0.1:{config.http_port}"
            with bound(triton, "double", RemoteWorkers(address)):
                np.testing.assert_array_equal(infer(triton, "double"), X * 2)
    assert worker.poll() is None


def test_only_workers_with_a_known_key_join(triton, workers, address, tmp_path):
    for name in ("server", "known", "unknown"):
        make_keys(tmp_path / name, name)
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (tmp_path / "known" / "known.key").rename(allowed / "known.key")
    remote = RemoteWorkers(
        address.replace("127.0.0.1", "0.0.0.0"), key=tmp_path / "server" / "server.key_secret", worker_keys=allowed
    )
    server_key = tmp_path / "server" / "server.key"
    refused = [
        workers("double=make_double", key=tmp_path / "unknown" / "unknown.key_secret", server_key=server_key),
        workers("double=make_double"),
    ]
    workers("double=make_double", key=tmp_path / "known" / "known.key_secret", server_key=server_key)
    with bound(triton, "double", remote):
        np.testing.assert_array_equal(infer(triton, "double"), X * 2)
        port = int(address.rpartition(":")[2])
        for nonsense in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100_000, bytes(range(256)) * 100):
            with socket.create_connection(("127.0.0.1", port)) as stranger, suppress(ConnectionError):
                stranger.sendall(nonsense)
        np.testing.assert_array_equal(infer(triton, "double"), X * 2)
        assert any("refused the connection: check the keys" in line for line in refused[0].stdout)
    assert all(process.poll() is None for process in refused)  # they try again


def test_a_worker_that_hangs_is_lost_after_three_heartbeats(triton, workers, address, tmp_path):
    frozen = workers("double=make_double")
    remote = RemoteWorkers(address, heartbeat_s=1.0)
    with bound(triton, "double", remote), ThreadPoolExecutor(1) as pool:
        np.testing.assert_array_equal(infer(triton, "double"), X * 2)
        frozen.send_signal(signal.SIGSTOP)
        waiting = pool.submit(infer, triton, "double")
        workers("double=make_double")
        np.testing.assert_array_equal(waiting.result(timeout=60), X * 2)
        frozen.send_signal(signal.SIGCONT)


def test_arguments_are_checked():
    with pytest.raises(PyTritonValidationError, match=r"other machines can reach tcp://0\.0\.0\.0:5555"):
        RemoteWorkers("tcp://0.0.0.0:5555")
    with pytest.raises(PyTritonBadParameterError, match="give key and worker_keys, or none"):
        RemoteWorkers("tcp://127.0.0.1:5555", key="x")
    with pytest.raises(PyTritonBadParameterError, match="listen is 'localhost:5555'; give tcp://HOST:PORT"):
        RemoteWorkers("localhost:5555")
    for name in ("min_workers", "instances", "batches_in_flight", "worker_timeout_s", "heartbeat_s"):
        with pytest.raises(PyTritonBadParameterError, match=name):
            RemoteWorkers("ipc:///tmp/x", **{name: -1})
    for name in ("count", "start_timeout_s", "worker_timeout_s", "idempotent", "heartbeat_s"):
        with pytest.raises(PyTritonBadParameterError, match=name):
            RayWorkers(lambda: None, **{name: -1})
    with pytest.raises(PyTritonValidationError, match="with share=True it is called once for all workers"):
        RayWorkers(lambda device: None, share=True)
    with pytest.raises(PyTritonBadParameterError, match="workers_per_actor"):
        RayWorkers(lambda: None, workers_per_actor=0)
