"""Which models leave when worker processes take more memory than they may."""

import logging
import math
from dataclasses import dataclass

import pytest

from pytriton import RemoteTriton
from pytriton.exceptions import PyTritonBadParameterError, PyTritonInvalidOperationError
from pytriton.pool.memory_budget import MemoryBudget


@dataclass
class Model:
    name: str
    memory: int
    idle: float
    has_sequences: bool = False
    ended: bool = False

    def memory_bytes(self):
        return 0 if self.ended else self.memory

    def idle_s(self):
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
            model.memory = memory
            budget.enforce([model])
    assert caplog.text.count("none of them can end now") == 2


@pytest.mark.parametrize("given", [0, -1, True, 1.5, "8 GiB"])
def test_a_budget_is_a_number_of_bytes(given):
    with pytest.raises(PyTritonBadParameterError, match="memory_budget"):
        RemoteTriton("http://127.0.0.1:1", memory_budget=given)
