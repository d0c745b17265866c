"""Warm-up requests reach a callable as those of clients do."""

import asyncio
import logging
import threading
from dataclasses import replace

import numpy as np
import pytest

from pytriton.decorators import batch, triton_context
from pytriton.decorators.batching import whole_batch_form
from pytriton.model_config import DynamicBatcher, ModelWarmup, SequenceBatcher, WarmupInput
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.worker.context import Binding, TritonContext
from pytriton.worker.inference import Inference, Options
from pytriton.worker.instance import Instance, make_executor
from pytriton.worker.results import is_async
from pytriton.worker.warmup import warm_up
from tests.server.processes import wait_for

CONFIG = TritonModelConfig(
    "m",
    batcher=DynamicBatcher(),
    inputs=[TensorSpec("x", (-1,), np.float32), TensorSpec("s", (), np.bytes_, optional=True)],
    outputs=[TensorSpec("y", (-1,), np.float32)],
)
LARGE = 100_000  # floats, more than travel inside a frame
X = WarmupInput(np.float32, (3,), random_data=True)
S = WarmupInput(bytes, (), random_data=True)
WARMUP = ModelWarmup("first", 2, {"x": X, "s": S}, 3)


@pytest.fixture
def warmed(tmp_path):
    """``warmed(callable, warmup, **config)``: warm a worker up; returns warnings that were logged."""
    instances = []

    def warmed(function, *warmups, options=None, **changes):
        config = replace(CONFIG, **changes)
        path = str(tmp_path / f"{len(instances)}.0")
        whole_batch = whole_batch_form(function)
        inference = Inference(function, config, options or Options(), lambda: None, whole_batch)
        executor = make_executor(function, inference, config.decoupled or is_async(function), "loop")
        binding = Binding(function, config, TritonContext())
        instances.append(Instance(path, binding, executor, lambda: None))
        warm_up(path, config, warmups)
        return instances[-1]

    yield warmed
    for instance in instances:
        instance.close()
        wait_for(lambda: not instance.is_connected(), "the connection to end")  # noqa: B023


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if "warm-up" in record.getMessage()]


@pytest.mark.parametrize("columns", [3, LARGE], ids=["small", "large"])
def test_a_callable_gets_each_request_alone_as_the_arrays_of_real_ones(warmed, caplog, columns):
    seen = []

    def function(requests):
        (request,) = requests
        seen.append((request["x"].shape, request["x"].dtype, request["s"].shape, type(request["s"][0])))
        assert request["x"].flags.writeable
        assert request.requested_output_names == ["y"]
        return [{"y": request["x"]}]

    x = WarmupInput(np.float32, (columns,), random_data=True)
    warmed(function, ModelWarmup("w", 2, {"x": x, "s": S}, 3), ModelWarmup("v", 4, {"x": X, "s": S}, 1))
    assert seen == [((2, columns), np.float32, (2,), bytes)] * 3 + [((4, 3), np.float32, (4,), bytes)]
    assert warnings(caplog) == []


def test_an_optional_input_may_be_left_out(warmed):
    seen = []

    def function(requests):
        seen.append([*requests[0]])
        return [{"y": requests[0]["x"]}]

    warmed(function, ModelWarmup("w", 1, {"x": X}))
    assert seen == [["x"]]


def test_another_input_that_is_left_out_is_zeros(warmed, caplog):
    seen = []

    def function(requests):
        seen.append({name: array.tolist() for name, array in requests[0].items()})
        return [{"y": requests[0]["x"]}]

    inputs = [TensorSpec("x", (-1, 2), np.float32), TensorSpec("t", (), np.bytes_)]
    warmed(function, ModelWarmup("w", 2, {}), inputs=inputs)
    assert seen == [{"x": [[[0, 0]], [[0, 0]]], "t": [b"", b""]}]
    assert warnings(caplog) == []


def test_without_batching_there_is_no_batch_axis(warmed):
    shapes = []

    def function(requests):
        shapes.append(requests[0]["x"].shape)
        return [{"y": requests[0]["x"]}]

    warmed(function, ModelWarmup("w", 0, {"x": X}, 1), batching=False)
    assert shapes == [(3,)]


def test_decorators_and_the_context_work(warmed, caplog):
    seen = []

    @batch
    @triton_context
    def function(x, s, triton_context):
        seen.append((x.shape, s.shape, triton_context is not None))
        return [x]

    warmed(function, WARMUP)
    assert seen == [((2, 3), (2,), True)] * 3
    assert warnings(caplog) == []


def test_coroutines_are_awaited_on_the_loop_that_serves(warmed):
    done = []

    async def function(requests):
        await asyncio.sleep(0)
        done.append(threading.current_thread().name)
        return [{"y": requests[0]["x"]}]

    warmed(function, WARMUP)
    assert done == ["loop"] * 3


@pytest.mark.parametrize("form", ["generator", "async generator"])
def test_generators_of_decoupled_models_are_exhausted(warmed, form):
    ended = []

    def generator(requests):
        for _ in range(100):  # more than a worker runs ahead
            yield [{"y": requests[0]["x"]}]
        ended.append(True)

    async def async_generator(requests):
        for response in generator(requests):
            yield response

    warmed(generator if form == "generator" else async_generator, WARMUP, decoupled=True)
    assert ended == [True] * 3


def test_a_failure_is_a_warning_and_the_other_requests_are_made(warmed, caplog):
    calls = []

    def function(requests):
        calls.append(len(requests))
        if len(calls) == 1:
            raise KeyError("weights")
        return [{"y": requests[0]["x"]}]

    warmed(function, WARMUP)
    assert len(calls) == 3
    (message,) = warnings(caplog)
    assert message == "model m: warm-up first failed, which does not prevent loading: KeyError: 'weights'"
    assert all(record.levelno == logging.WARNING for record in caplog.records)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([], "0 responses to 1 requests"),
        ([{"y": np.zeros((1, 3), np.float32)}], "1 rows, expected 2"),
        ([{"z": np.zeros((2, 3), np.float32)}], "'z' of response 0 is not declared"),
        ([ValueError("one request")], "one request"),
    ],
)
def test_results_are_checked_as_those_of_real_requests(warmed, caplog, returned, message):
    warmed(lambda requests: returned, ModelWarmup("w", 2, {"x": X}), options=Options(strict=True))
    (warning,) = warnings(caplog)
    assert message in warning


def test_data_that_cannot_be_had_are_a_warning(warmed, caplog, tmp_path):
    missing = WarmupInput(np.float32, (3,), input_data_file=str(tmp_path / "missing.npy"))
    calls = []
    warmed(calls.append, ModelWarmup("w", 2, {"x": missing}))
    assert calls == []
    assert "missing.npy cannot be read" in warnings(caplog)[0]


def test_a_worker_that_does_not_listen_is_a_warning(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("pytriton.worker.warmup.CONNECT_TIMEOUT_S", 0.0)
    warm_up(str(tmp_path / "nobody.0"), CONFIG, [WARMUP])
    assert "does not answer" in warnings(caplog)[0]


def test_each_request_of_a_model_with_sequences_is_a_sequence(warmed, caplog):
    seen = []

    def function(requests):
        (request,) = requests
        seen.append((bool(request.correlation_id), request.sequence_start, request.sequence_end))
        return [{"y": request["x"]}]

    warmed(function, WARMUP, batcher=SequenceBatcher())
    assert seen == [(True, True, True)] * 3
    assert warnings(caplog) == []


def test_a_callable_may_ask_whether_its_client_has_gone(warmed):
    seen = []

    def function(requests):
        seen.append(requests[0].is_cancelled())
        return [{"y": requests[0]["x"]}]

    warmed(function, WARMUP)
    assert seen == [False] * 3
