"""Callables are warmed up before the server serves their model."""

import asyncio

import numpy as np
import pytest

from pytriton.decorators import batch
from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config import ModelConfig, ModelWarmup, SequenceBatcher, Tensor, WarmupInput
from pytriton.triton import Triton
from tests.server.arrays import filled
from tests.server.conftest import local_config

pytestmark = pytest.mark.either_proxy

ZEROS = WarmupInput(np.float32, (3,), zero_data=True)
WARMUP = [ModelWarmup("zeros", 2, {"x": ZEROS}, 2)]


class Log:
    """Doubles its input, and keeps the shapes that it was called with."""

    def __init__(self, is_ready=lambda: None):
        self.calls = []
        self._is_ready = is_ready

    def __call__(self, requests):
        self.calls.append(([request["x"].shape for request in requests], self._is_ready()))
        return [{"y": request["x"] * 2} for request in requests]


@pytest.mark.parametrize("api", ["http", "grpc"], indirect=True)
def test_each_callable_is_warm_before_the_model_is_ready(api, triton):
    name = f"warm-{api.kind}"

    def is_ready():
        with api.other() as client:  # tritonclient's belongs to the thread that made it
            return client.call("is_model_ready", name)

    logs = [Log(is_ready) for _ in range(2)]
    tensors = [[Tensor(name=side, shape=(-1,), dtype=np.float32)] for side in "xy"]
    triton.bind(name, logs, *tensors, config=ModelConfig(model_warmup=WARMUP))
    assert [log.calls for log in logs] == [[([(2, 3)], False)] * 2] * 2
    assert api.infer(name, {"x": filled(2)})["y"][0, 0] == 4


def test_models_bound_before_the_start_are_warmed_up_at_the_start():
    log = Log()
    with local_config(allow_grpc=False) as config:
        triton = Triton(config=config)
        tensors = [[Tensor(name=side, shape=(-1,), dtype=np.float32)] for side in "xy"]
        triton.bind("m", log, *tensors, config=ModelConfig(model_warmup=WARMUP))
        assert log.calls == []
        with triton:
            assert len(log.calls) == 2


def test_a_failing_warm_up_is_a_warning_and_the_model_is_served(bind, traffic, caplog):
    failures = [KeyError("weights"), KeyError("weights")]

    def function(requests):
        if failures:
            raise failures.pop()
        return [{"y": request["x"] * 2} for request in requests]

    model = bind(function, model_warmup=WARMUP)
    assert caplog.text.count("warm-up zeros failed, which does not prevent loading: KeyError: 'weights'") == 2
    assert traffic.infer(model, filled(2))["y"][0, 0] == 4


@pytest.mark.parametrize("form", ["batch", "async", "generator", "async generator", "sequence", "no batching"])
def test_every_form_of_callable_is_warmed_up_as_it_is_called_later(bind, caplog, form):
    calls = []

    def function(requests):
        calls.append(requests[0]["x"].shape)
        return [{"y": request["x"] * 2} for request in requests]

    @batch
    def joined(x):
        calls.append(x.shape)
        return [x * 2]

    async def awaited(requests):
        await asyncio.sleep(0)
        return function(requests)

    def generator(requests):
        yield function(requests)

    async def async_generator(requests):
        yield function(requests)

    functions = {"batch": joined, "async": awaited, "generator": generator, "async generator": async_generator}
    options = {
        "generator": {"decoupled": True},
        "async generator": {"decoupled": True},
        "sequence": {"batcher": SequenceBatcher()},
        "no batching": {"batching": False},
    }.get(form, {})
    rows = 1 if form == "no batching" else 4
    warmup = [ModelWarmup("w", rows, {"x": ZEROS})]
    bind(functions.get(form, function), strict=True, model_warmup=warmup, **options)
    assert calls == [(3,) if form == "no batching" else (4, 3)]
    assert "failed" not in caplog.text


def test_inputs_that_a_warm_up_leaves_out_are_zeros_or_absent(bind, caplog):
    seen = []

    def function(requests):
        seen.append({name: array.tolist() for name, array in requests[0].items()})
        return [{"y": request["x"]} for request in requests]

    inputs = [
        Tensor(name="x", shape=(-1,), dtype=np.float32),
        Tensor(name="scale", shape=(2,), dtype=np.int32),
        Tensor(name="text", shape=(1,), dtype=bytes, optional=True),
    ]
    bind(function, inputs, model_warmup=[ModelWarmup("w", 1, {"x": ZEROS})])
    assert seen == [{"x": [[0, 0, 0]], "scale": [[0, 0]]}]
    assert "failed" not in caplog.text


def test_warm_up_for_inputs_that_the_model_does_not_have_is_refused(bind):
    with pytest.raises(PyTritonBadParameterError, match=r"warm-up 'w': \['z'\] are no inputs of the model"):
        bind(Log(), model_warmup=[ModelWarmup("w", 1, {"x": ZEROS, "z": ZEROS})])
