"""Many models under a budget of memory: those in use are loaded, and all answer."""

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.decorators import batch
from pytriton.model_config import Tensor
from pytriton.pool import memory_budget
from pytriton.pool.resources import memory_of
from pytriton.triton import Triton, TritonLifecyclePolicy
from pytriton.workers import Processes
from tests.server.arrays import filled
from tests.server.own_server import address
from tests.server.processes import wait_for

pytestmark = pytest.mark.either_proxy

MODELS = 6
WEIGHTS = 64 << 20
BUDGET = 300 << 20  # for the weights of 4, with all else of 2 or 3

X, Y = ([Tensor(name=name, shape=(-1,), dtype=np.float32)] for name in ("x", "y"))


def heavy(number):
    def factory():
        weights = np.full(WEIGHTS // 8, float(number))

        @batch
        def add(x):
            return {"y": x + np.float32(weights[-1])}

        return add

    return factory


def test_models_that_nobody_calls_leave_memory_to_those_that_are_called(free_config):
    def taken():
        statuses = [each for number in range(MODELS) for each in triton.worker_status(f"m{number}")]
        found = [memory_of(each.pid) for each in statuses if each.pid]
        return sum(memory[1] for memory in found if memory is not None)  # one may have ended meanwhile

    def states():
        return {f"m{number}": triton.worker_status(f"m{number}")[0].state for number in range(MODELS)}

    def call(seed):
        """Some models more often than others."""
        chosen = random.Random(seed)
        with ModelClient(url, "m0") as first, ModelClient(url, "m1") as second:
            for _ in range(12):
                number = min(int(chosen.paretovariate(0.7)) - 1, MODELS - 1)
                with ModelClient(url, f"m{number}") as client:
                    assert client.infer_batch(filled(1.0))["y"][0, 0] == 1.0 + number
                assert first.infer_batch(filled(2.0))["y"][0, 0] == 2.0
                assert second.infer_batch(filled(2.0))["y"][0, 0] == 3.0

    with Triton(config=free_config, memory_budget=BUDGET) as triton:
        url = address(free_config, "http")
        for number in range(MODELS):
            triton.bind(f"m{number}", Processes(heavy(number), count=1), X, Y)
        wait_for(lambda: [*states().values()].count("at zero") >= 2, "the first models to leave")
        wait_for(lambda: taken() <= BUDGET, "memory to suffice")
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(call, range(3)))
        wait_for(lambda: taken() <= BUDGET, "models that are not called to leave")
        assert "at zero" in states().values()
        with ModelClient(url, f"m{MODELS - 1}") as client:
            assert client.infer_batch(filled(1.0))["y"][0, 0] == float(MODELS)


def test_the_budget_holds_already_while_the_server_starts_with_its_models(free_config, monkeypatch):
    monkeypatch.setattr(memory_budget, "PATIENCE_S", 3600.0)  # else starts would go on without it
    store = TritonLifecyclePolicy(launch_triton_on_startup=False, local_model_store=True)
    with Triton(config=free_config, memory_budget=BUDGET, triton_lifecycle_policy=store) as triton:
        triton.bind("m", Processes(heavy(1), count=1), X, Y)
        triton.run()
        with ModelClient(address(free_config, "http"), "m") as client:
            assert client.infer_batch(filled(1.0))["y"][0, 0] == 2.0
