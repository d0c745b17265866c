"""What a callable returned, of each kind, becomes the responses it stands for."""

from __future__ import annotations

import asyncio

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
