"""The history of samples, quantiles, the channel to the hosting process, and the tail of the log."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import socket
import subprocess
import sys
import threading
import tracemalloc

import pytest

from pytriton.constants import LATENCY_BOUNDS_S
from pytriton.exceptions import PyTritonInvalidOperationError
from pytriton.operations import MOST_RECORDS, LogTail
from pytriton.rest.host import Channel, HostError, serve
from pytriton.rest.metrics import AppMetrics
from pytriton.rest.pages.history import History, Ring
from pytriton.rest.pages.live import Live
from pytriton.rest.pages.sampler import MODEL_COLUMNS, quantile_s

START = 1_800_000_000
MOST_BYTES = 20 * 2**20  # of both histories, as docs/pages.md says


def test_a_ring_keeps_the_last_rows_and_forgets_older_ones():
    ring = Ring(1.0, 3, 1)
    for second in range(5):
        ring.put(START + second + 0.4, [second])
    assert ring.read() == ([START + 2, START + 3, START + 4], [[2.0, 3.0, 4.0]])


def test_intervals_without_a_row_are_left_out():
    ring = Ring(1.0, 4, 2)
    ring.put(START, [1, float("nan")])
    ring.put(START + 3, [2, 3])
    assert ring.read() == ([START, START + 3], [[1.0, 2.0], [None, 3.0]])
    ring.put(START + 9, [4, 5])
    assert ring.read() == ([START + 9], [[4.0], [5.0]])
    ring.put(START + 8, [6, 7])
    assert ring.read() == ([START + 9], [[4.0], [5.0]])


def test_a_minute_has_the_mean_of_its_seconds_and_the_peak_of_peaks():
    history = History(["rate", "p99"], peaks=["p99"])
    history.put(START, 10.0, {"a": {"rate": 1.0, "p99": 5.0}})
    history.put(START + 10, 30.0, {"a": {"rate": 5.0, "p99": None}})
    found = history.read(by_minute=True)["a"]
    assert (found["rate"], found["p99"]) == ([4.0], [5.0])
    assert history.read(by_minute=False)["a"]["p99"] == [5.0, None]


def sample(models, processes):
    """Figures that differ from sample to sample, as those of models with traffic."""
    figures = {column: random.random() for column in MODEL_COLUMNS}
    return {f"model{number}": figures for number in range(models)}, {
        f"worker {number}": {"memory": random.random() * 2**30, "cpu": random.random()} for number in range(processes)
    }


@pytest.fixture
def traced():
    """How many bytes were allocated since this began, and are not freed."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    yield lambda: gc.collect() >= 0 and tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()


def test_a_day_of_traffic_fits_into_its_memory(traced):
    live = Live(None)  # type: ignore[arg-type] # takes no samples here
    used = []
    for time_s in [*range(0, 86_400, 300), *range(86_400, 86_700)]:
        models, processes = sample(20, 8)
        live.models.put(START + time_s, 1.0, models)
        live.processes.put(START + time_s, 1.0, processes)
        if time_s % 43_200 == 0:
            used.append(traced())
    assert traced() < MOST_BYTES
    assert traced() - used[0] < MOST_BYTES / 100  # all of it is there from the first sample on
    found = live.models.read(by_minute=True)
    assert len(found) == 20
    assert {len(column) for column in found["model19"].values()} == {288 - 1 + 5}
    assert len(live.models.read(by_minute=False)["model19"]["p99"]) == 300 + 2


def test_a_day_of_any_number_of_models_and_processes_fits_into_its_memory(traced):
    live = Live(None)  # type: ignore[arg-type] # takes no samples here
    for minute in (0, 1, 1439):
        models, processes = sample(400, 400)
        live.models.put(START + 60 * minute, 60.0, models)
        live.processes.put(START + 60 * minute, 60.0, processes)
    del models, processes
    assert MOST_BYTES / 2 < traced() < MOST_BYTES


def test_models_that_have_gone_make_room_for_others():
    history = History(["rate"], most=2)
    history.put(START, 1.0, {"a": {"rate": 1}, "b": {"rate": 1}})
    history.put(START + 1, 1.0, {"b": {"rate": 1}, "c": {"rate": 1}, "d": {"rate": 1}})
    assert {*history.read(by_minute=False)} == {"b", "c"}


@pytest.mark.parametrize("seconds", [0.0002, 0.003, 0.02, 1.7, 55.0])
def test_a_quantile_is_wrong_by_a_bucket_at_most(seconds):
    metrics = AppMetrics()
    for _ in range(100):
        metrics.begin()
        metrics.end("/predict/{model}", "a", 200, seconds, 0, 0)
    found = quantile_s(metrics.latencies()["a"], 0.99)
    assert seconds / 1.25 <= found <= seconds * 1.25


def test_quantiles_of_nothing_and_of_very_long_times():
    assert quantile_s([], 0.5) is None
    assert quantile_s([0.0] * (len(LATENCY_BOUNDS_S) + 1), 0.5) is None
    assert quantile_s([0.0] * len(LATENCY_BOUNDS_S) + [3.0], 0.5) == LATENCY_BOUNDS_S[-1]


def test_the_latencies_are_no_part_of_the_page_of_metrics():
    metrics = AppMetrics()
    metrics.begin()
    metrics.end("/predict/{model}", "a", 200, 0.1, 0, 0)
    assert "latencies" not in metrics.text()
    assert [(status, seconds) for _, status, seconds in metrics.recent("a")] == [(200, 0.1)]


def test_the_hosting_process_answers_several_questions_at_once_and_refusals_have_their_message():
    ours, theirs = socket.socketpair()
    held = threading.Event()

    def answer(question, **arguments):
        if question == "slow":
            held.wait()
        if question == "bad":
            raise PyTritonInvalidOperationError("no such model")
        return [question, arguments]

    thread = threading.Thread(target=serve, args=(ours, answer))
    thread.start()

    async def ask():
        channel = Channel(theirs)
        slow = asyncio.ensure_future(channel.ask("slow", model="a"))
        assert await channel.ask("quick", count=2) == ["quick", {"count": 2}]
        with pytest.raises(HostError, match="no such model"):
            await channel.ask("bad")
        assert not slow.done()
        held.set()
        assert await slow == ["slow", {"model": "a"}]
        theirs.shutdown(socket.SHUT_RDWR)
        with pytest.raises(HostError, match="has gone"):
            await asyncio.wait_for(channel.ask("quick"), 10)
        await channel.close()
        assert theirs.fileno() == -1

    asyncio.run(ask())
    thread.join()


def test_the_tail_of_the_log_has_the_last_records_and_those_after_one():
    tail = LogTail()
    for number in range(MOST_RECORDS + 5):
        tail.handle(logging.makeLogRecord({"msg": "number %d", "args": (number,), "levelname": "INFO", "levelno": 20}))
    found = tail.after(0)
    assert len(found) == MOST_RECORDS
    assert found[0]["text"] == "number 5"
    assert [each["text"] for each in tail.after(found[-2]["number"])] == [f"number {MOST_RECORDS + 4}"]


PROGRAM = """
import logging
from pytriton.operations import OURS, LogTail
for _ in range(2):
    OURS.addHandler(LogTail())
{setup}
logging.getLogger("pytriton.server").warning("only once")
logging.getLogger("pytriton.server").info("not at all")
"""


@pytest.mark.parametrize("setup", ["", "logging.basicConfig()"])
def test_keeping_the_log_neither_hides_nor_repeats_warnings(setup):
    program = [sys.executable, "-c", PROGRAM.format(setup=setup)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stderr.count("only once") == 1
    assert "not at all" not in done.stderr
