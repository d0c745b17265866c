"""What a callable returned, of each kind, becomes the responses it stands for."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

from pytriton.worker.results import Results

RESPONSES = [{"y": 1}]


@pytest.fixture
def results():
    results = Results()
    yield results
    results.close()


async def coroutine():
    return RESPONSES


def generator():
    yield RESPONSES


async def async_generator():
    yield RESPONSES


@pytest.mark.parametrize("function", [lambda: RESPONSES, coroutine, generator, async_generator])
def test_every_kind_of_callable_gives_its_responses(results, function):
    assert results.of(function()) is RESPONSES


def test_closing_after_a_coroutine_has_ended_closes_its_loop_without_complaint():
    loops = []

    async def record():
        loops.append(asyncio.get_running_loop())

    results = Results()
    results.of(record())
    results.close()
    assert loops[0].is_closed()


def test_closing_cancels_what_a_coroutine_left_running():
    ended = []

    async def background():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def start():
        task = asyncio.create_task(background())
        await asyncio.sleep(0)  # lets it begin
        return [task]

    results = Results()
    (task,) = results.of(start())
    results.close()
    assert ended == ["cancelled"]
    assert task.cancelled()


def test_coroutines_share_one_loop(results):
    async def loop():
        return asyncio.get_running_loop()

    assert results.of(loop()) is results.of(loop())


@pytest.mark.parametrize("yields", [0, 2])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_generator_must_yield_exactly_once(results, kind, yields):
    def several():
        for _ in range(yields):
            yield RESPONSES

    async def several_async():
        for _ in range(yields):
            yield RESPONSES

    with pytest.raises(ValueError, match="yielded"):
        results.of(several() if kind == "sync" else several_async())


@pytest.mark.parametrize(
    "returned", [None, 3, {"y": 1}, (RESPONSES,), iter([RESPONSES])], ids=lambda value: type(value).__name__
)
def test_other_values_pass_as_they_are(results, returned):
    assert results.of(returned) is returned


def test_an_awaitable_or_a_coroutine_of_a_generator_counts_as_what_it_gives(results):
    class Later:
        def __await__(self):
            yield from ()
            return generator()

    async def coroutine_of_async_generator():
        return async_generator()

    assert results.of(Later()) is RESPONSES
    assert results.of(coroutine_of_async_generator()) is RESPONSES


@pytest.mark.parametrize("yields", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_generator_is_closed_before_the_call_ends(results, kind, yields):
    ended = []

    def several():
        try:
            for _ in range(yields):
                yield RESPONSES
        finally:
            ended.append(yields)

    async def several_async():
        try:
            for _ in range(yields):
                yield RESPONSES
        finally:
            await asyncio.sleep(0)
            ended.append(yields)

    with pytest.raises(ValueError, match="yielded") if yields != 1 else nullcontext():
        results.of(several() if kind == "sync" else several_async())
    assert ended == [yields]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_a_coroutine_raises_comes_out_with_its_traceback_and_the_next_one_works(results, kind):
    async def inner():
        await asyncio.sleep(0)
        raise kind("no")

    async def outer():
        await inner()

    with pytest.raises(kind, match="no") as raised:
        results.of(outer())
    assert [entry.name for entry in raised.traceback][-2:] == ["outer", "inner"]
    assert results.of(coroutine()) is RESPONSES


def test_what_a_coroutine_started_goes_on_while_the_next_one_runs(results):
    async def start():
        return [asyncio.create_task(coroutine())]

    async def join(tasks):
        return await tasks[0]

    assert results.of(join(results.of(start()))) is RESPONSES


def test_closing_without_a_coroutine_and_closing_twice_do_nothing(results):
    results.close()
    results.of(coroutine())
    results.close()
    results.close()


def test_results_work_in_a_thread_that_has_no_loop_of_its_own():
    with ThreadPoolExecutor(1) as pool:
        results = Results()
        assert pool.submit(lambda: results.of(coroutine())).result() is RESPONSES
        pool.submit(results.close).result()
