"""Which models leave when worker processes take more memory than they may."""

import logging
import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from pytriton import RemoteTriton
from pytriton.exceptions import PyTritonBadParameterError, PyTritonInvalidOperationError
from pytriton.model import Model as BoundModel
from pytriton.model_config import ModelConfig, Tensor
from pytriton.model_spec import describe
from pytriton.pool import memory_budget
from pytriton.pool.memory_budget import MemoryBudget, ModelMemory
from pytriton.pool.pool import ServedModel, WorkerStatus
from pytriton.worker.context import TritonContext
from pytriton.worker.inference import Options
from pytriton.worker.observation import Observation
from tests.server.processes import wait_for


@dataclass(eq=False)
class Model:
    name: str
    bytes: int
    idle: float
    has_sequences: bool = False
    ended: bool = False
    asked: int = 0
    has_gone: bool = True  # once it has ended
    stays: int = 0  # of the memory, after that

    def memory(self):
        taken = self.stays if self.ended and self.has_gone else self.bytes
        return ModelMemory(taken, taken - self.stays if self.ended else 0, self.bytes - self.stays)

    def idle_s(self):
        self.asked += 1
        return math.inf if self.ended else self.idle

    def end_idle(self):
        if self.has_sequences:
            raise PyTritonInvalidOperationError("there may be open sequences")
        self.ended = True


def left(limit, *models):
    MemoryBudget(limit).enforce(models)
    return [model.name for model in models if not model.ended]


def test_models_stay_within_the_budget():
    assert left(200, Model("a", 100, 5.0), Model("b", 100, 9.0)) == ["a", "b"]


def test_the_least_recently_called_models_leave_and_no_more_than_needed():
    assert left(250, Model("a", 100, 5.0), Model("b", 100, 9.0), Model("c", 100, 7.0), Model("d", 100, 1.0)) == [
        "a",
        "d",
    ]


def test_models_that_work_or_have_sequences_or_take_nothing_stay(caplog):
    busy, open_, threads, idle = (
        Model("busy", 100, 0.0),
        Model("open", 100, 9.0, has_sequences=True),
        Model("threads", 0, math.inf),
        Model("idle", 100, 3.0),
    )
    with caplog.at_level(logging.WARNING, "pytriton"):
        assert left(150, busy, open_, threads, idle) == ["busy", "open", "threads"]
    assert "none of them can end now" in caplog.text


def test_an_excess_is_told_once_until_it_has_gone(caplog):
    model = Model("m", 100, 0.0)
    budget = MemoryBudget(50)
    with caplog.at_level(logging.WARNING, "pytriton"):
        for memory in (100, 100, 10, 100):
            model.bytes = memory
            budget.enforce([model])
    assert caplog.text.count("none of them can end now") == 2


def test_memory_that_stays_when_workers_end_counts_and_its_excess_is_told_once(caplog):
    models = [Model(name, 100, 9.0, stays=80) for name in "abc"]
    budget = MemoryBudget(200)
    with caplog.at_level(logging.WARNING, "pytriton"):
        for _ in range(3):
            budget.enforce(models)
    assert all(model.ended for model in models)
    assert caplog.text.count("take 0 MiB more than their budget") == 1


def test_only_models_are_asked_that_may_have_been_idle_for_longest():
    models = [Model(name, 100, idle) for name, idle in {"a": 9.0, "b": 7.0, "c": 5.0, "d": 3.0}.items()]
    budget = MemoryBudget(300)
    budget.enforce(models)
    budget.enforce([*models, Model("new", 100, 0.0)])
    assert {model.name: (model.ended, model.asked) for model in models} == {
        "a": (True, 1),
        "b": (True, 2),
        "c": (False, 1),
        "d": (False, 1),
    }


@contextmanager
def watching(limit, *models):
    budget = MemoryBudget(limit)
    thread = threading.Thread(target=budget.watch, args=(models,))
    thread.start()
    try:
        yield budget
    finally:
        budget.end()
        thread.join()


def test_a_process_starts_when_those_that_make_room_for_it_have_ended(monkeypatch):
    monkeypatch.setattr(memory_budget, "PAUSE_S", 3600.0)
    monkeypatch.setattr(memory_budget, "PATIENCE_S", 3600.0)
    idle, starting = Model("idle", 100, 5.0, has_gone=False), Model("starting", 100, 0.0)
    with watching(150, idle, starting) as budget, ThreadPoolExecutor() as threads:
        waiting = threads.submit(budget.wait_for_room, lambda: False)
        wait_for(lambda: idle.ended, "it to be asked to end")
        budget.look()  # as something else happens
        cancelled = threads.submit(budget.wait_for_room, lambda: True)
        cancelled.result()
        assert not waiting.done()
        idle.has_gone = True
        budget.look()
        waiting.result()


def test_a_process_starts_although_nothing_makes_room_or_takes_long_to_do_so(monkeypatch):
    monkeypatch.setattr(memory_budget, "PATIENCE_S", 3600.0)
    with watching(50, Model("busy", 100, 0.0)) as budget:
        budget.wait_for_room(lambda: False)
    monkeypatch.setattr(memory_budget, "PATIENCE_S", 0.2)
    idle = Model("idle", 100, 5.0, has_gone=False)
    with watching(50, idle) as budget:
        budget.wait_for_room(lambda: False)
        assert idle.ended
        assert not budget._has_room


def test_a_process_that_starts_counts_as_much_as_before_and_one_elsewhere_nothing():
    tensors = [[Tensor(name=name, shape=(-1,), dtype=np.float32)] for name in "xy"]
    told = []
    staying = []
    pool = SimpleNamespace(workers=[], statuses=lambda: told, staying=lambda: staying)
    workers = SimpleNamespace(pool=lambda served: pool)
    config = describe("m", 1, *tensors, ModelConfig(), 1)
    model = BoundModel(workers, ServedModel(config, TritonContext(), Options(), Observation()))

    def counted(state, pid=None, kind="process"):
        told[:] = [WorkerStatus("m-0", kind, state, pid, pss_bytes=1 if kind == "remote" else None)]
        return model.memory()

    assert counted("starting") == (0, 0, 0)
    ready, leaving, freed = counted("ready", os.getpid())
    assert ready == freed > leaving == 0
    taken, leaving, freed = counted("leaving", os.getpid())
    assert taken == leaving > freed == 0
    assert counted("at zero") == (0, 0, 0)
    assert counted("starting") == (ready, 0, 0)
    assert counted("ready", os.getpid(), "remote") == (0, 0, 0)
    staying.append("m-template")
    assert 0 < counted("ready", os.getpid()).freed <= ready
    staying.append("m-0")
    assert counted("ready", os.getpid()).freed == 0


@pytest.mark.parametrize("given", [0, -1, True, 1.5, "8 GiB"])
def test_a_budget_is_a_number_of_bytes(given):
    with pytest.raises(PyTritonBadParameterError, match="memory_budget"):
        RemoteTriton("http://127.0.0.1:1", memory_budget=given)
