"""``pytriton bench`` on real models."""

import json
import re
import signal

import numpy as np
import pytest

from pytriton.decorators import batch, sample
from pytriton.model_config import Tensor
from tests.server.command import Command, run
from tests.server.processes import wait_for

pytestmark = pytest.mark.either_proxy

FEW = ["-c", "4", "-n", "40", "--warmup", "0.05"]


@batch
def double(x):
    return {"y": x * 2}


@sample
def lengths(text, number):
    return {"y": np.float32([len(each) for each in text])}


def fail(requests):
    raise ValueError("out of order")


def thrice(requests):
    for _ in range(3):
        yield [{"y": request["x"]} for request in requests]


def test_a_model_is_measured_over_both_protocols(bind, url, tmp_path):
    name = bind(double, max_batch_size=16)
    report = tmp_path / "figures.json"
    done = run("bench", url, name, *FEW, "-b", "8", "--shape", "x=3", "--json", str(report))
    assert done.returncode == 0, done.stderr
    assert f"{name} at {url}, 4 at a time; x FP32 [8, 3]" in done.stdout
    assert re.search(r"requests answered +40\b", done.stdout)
    found = json.loads(report.read_text())
    assert (found["answered"], found["failed"], found["rows"], found["concurrency"]) == (40, 0, 8, 4)
    assert found["inputs"] == [{"name": "x", "dtype": "FP32", "shape": [8, 3]}]
    latency = found["latency_ms"]
    assert 0 < latency["min"] <= latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    assert found["rows_per_s"] == pytest.approx(8 * found["requests_per_s"])


def test_texts_and_numbers_are_made_for_a_model_without_batching(bind, triton_config):
    inputs = [Tensor(name="text", shape=(-1,), dtype=bytes), Tensor(name="number", shape=(2, 2), dtype=np.int8)]
    name = bind(lengths, inputs, batching=False)
    done = run("bench", f"http://127.0.0.1:{triton_config.http_port}", name, *FEW, "--size", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "text BYTES [3], number INT8 [2, 2]" in done.stdout


def test_a_decoupled_model_is_measured_to_its_first_and_last_response(bind, grpc_url, tmp_path):
    name = bind(thrice, decoupled=True, max_batch_size=8, batcher=None)
    report = tmp_path / "figures.json"
    done = run("bench", grpc_url, name, *FEW, "--json", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())
    assert (found["answered"], found["responses"]) == (40, 120)
    assert 0 < found["first_response_ms"]["mean"] < found["latency_ms"]["mean"]


def test_a_decoupled_model_needs_grpc(counter, triton_config):
    done = run("bench", f"http://127.0.0.1:{triton_config.http_port}", counter, *FEW)
    assert done.returncode == 1
    assert "decoupled models are called over gRPC" in done.stderr


def test_failures_are_counted_by_their_text(bind, url):
    done = run("bench", url, bind(fail), "-n", "10", "-c", "2", "--warmup", "0")
    assert done.returncode == 1
    assert re.search(r"requests failed +10\b", done.stdout)
    assert re.search(r"ValueError: out of order +10\b", done.stdout)


def test_a_histogram_is_shown_on_request(bind, triton_config):
    url, name = f"http://127.0.0.1:{triton_config.http_port}", bind(double)
    done = run("bench", url, name, *FEW, "--histogram")
    assert done.returncode == 0, done.stderr
    assert "█" in done.stdout
    assert "█" not in run("bench", url, name, *FEW).stdout


def test_what_does_not_fit_the_model_is_refused(bind, triton_config):
    url, name = f"http://127.0.0.1:{triton_config.http_port}", bind(double)
    done = run("bench", url, name, "-b", "5")
    assert (done.returncode, done.stderr) == (2, f"pytriton: model {name!r} takes batches of up to 4 rows, not 5\n")


def test_a_model_that_is_not_there_is_named(triton, triton_config):
    done = run("bench", f"http://127.0.0.1:{triton_config.http_port}", "nobody", "--wait", "0.5")
    assert done.returncode == 1
    assert "model 'nobody' (version <latest>)" in done.stderr


def test_a_signal_ends_it_with_what_was_measured(bind, triton_config, tmp_path):
    entered = []

    @batch
    def note(x):
        entered.append(x)
        return {"y": x}

    url, name = f"http://127.0.0.1:{triton_config.http_port}", bind(note)
    command = Command(tmp_path, "bench", url, name, "-d", "100", "--warmup", "0", "-c", "1")
    try:
        wait_for(lambda: len(entered) > 5, "some requests")
        assert command.end(signal.SIGINT) == 0
    finally:
        command.kill()
    assert "1 at a time (interrupted)" in command.output
    assert "requests per second" in command.output
