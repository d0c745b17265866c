"""Streams: lines of JSON and server-sent events, errors in mid-stream, heartbeats, disconnects."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx
import pytest

from pytriton.exceptions import ErrorCode, PyTritonRequestError
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.rest.ways import RunningApp

pytestmark = pytest.mark.either_proxy

SSE, NDJSON = "text/event-stream", "application/x-ndjson"


@dataclass
class Word:
    text: str
    number: int


def tell(prompt: str, count: int = 3) -> Iterator[Word]:
    for number in range(count):
        yield Word(prompt, number)


def fail_after(count: int) -> Iterator[str]:
    for number in range(count):
        yield str(number)
    raise PyTritonRequestError("enough", ErrorCode.NOT_FOUND)


def slow(pause_s: float) -> Iterator[str]:
    time.sleep(pause_s)
    yield "first"
    time.sleep(pause_s)
    yield "second"


def once(text: str) -> str:
    return text


class Endless:
    """Yields until it is closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.begun = threading.Event()

    def __call__(self, text: str) -> Iterator[str]:
        try:
            while True:
                self.begun.set()
                yield text
                time.sleep(0.01)
        finally:
            self.closed.set()


class EndlessAsync(Endless):
    async def __call__(self, text: str) -> AsyncIterator[str]:
        try:
            while True:
                self.begun.set()
                yield text
                await asyncio.sleep(0.01)
        finally:
            self.closed.set()


class Waiting:
    """Answers once its gate is open, or when its request is cancelled."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.cancelled = threading.Event()
        self.gate = threading.Event()

    async def __call__(self, text: str) -> str:
        self.begun.set()
        try:
            while not self.gate.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return text


@pytest.fixture(scope="module", autouse=True)
def models(app: RunningApp) -> None:
    for function in (tell, fail_after, slow, once):
        app.triton.bind(function)


def events(text: str) -> list[tuple[str, object]]:
    """Name and data of each server-sent event, but heartbeats."""
    found = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in block.splitlines())
        if "data" in fields:
            found.append((fields.get("event", "message"), json.loads(fields["data"])))
    return found


def lines(response: httpx.Response) -> list[object]:
    return [json.loads(line) for line in response.text.splitlines()]


def test_a_stream_is_lines_of_json_by_default(app):
    response = app.post("/predict/tell", {"prompt": "ä"})
    assert response.status_code == 200
    assert response.headers["content-type"] == NDJSON
    assert lines(response) == [{"text": "ä", "number": number} for number in range(3)]


def test_a_stream_is_server_sent_events_on_demand(app):
    response = app.post("/predict/tell", {"prompt": "line\nend"}, headers={"accept": SSE})
    assert response.headers["content-type"] == f"{SSE}; charset=utf-8"
    values = [("message", {"text": "line\nend", "number": number}) for number in range(3)]
    assert events(response.text) == [*values, ("end", {})]


def test_an_empty_stream_ends(app):
    assert lines(app.post("/predict/tell", {"prompt": "", "count": 0})) == []
    response = app.post("/predict/tell", {"prompt": "", "count": 0}, headers={"accept": SSE})
    assert events(response.text) == [("end", {})]


def test_an_error_before_the_first_value_is_a_status(app):
    status, error = app.refusal("/predict/fail_after", {"count": 0})
    assert (status, error) == (404, {"code": "NOT_FOUND", "message": "enough"})


def test_an_error_in_mid_stream_is_its_last_value(app):
    error = {"error": {"code": "NOT_FOUND", "message": "enough"}}
    assert lines(app.post("/predict/fail_after", {"count": 1})) == [{"result": "0"}, error]
    response = app.post("/predict/fail_after", {"count": 2}, headers={"accept": SSE})
    assert events(response.text) == [("message", {"result": "0"}), ("message", {"result": "1"}), ("error", error)]


def test_a_value_that_does_not_fit_is_a_status(app):
    status, error = app.refusal("/predict/tell", {"prompt": 1, "count": "x"}, headers={"accept": SSE})
    assert status == 422
    assert [each["path"] for each in error["details"]] == [["prompt"], ["count"]]


def test_a_silent_stream_has_heartbeats(app):
    response = app.post("/predict/slow", {"pause_s": 0.5}, headers={"accept": SSE})
    assert response.text.startswith(": heartbeat\n\n")
    assert ": heartbeat" in response.text.partition("first")[2].partition("second")[0]
    assert events(response.text)[:2] == [("message", {"result": "first"}), ("message", {"result": "second"})]


def test_lines_of_json_have_no_heartbeats(app):
    assert app.post("/predict/slow", {"pause_s": 0.3}).text == '{"result":"first"}\n{"result":"second"}\n'


def test_a_model_that_answers_once_can_stream_its_answer(app):
    response = app.post("/predict/once", {"text": "a"}, headers={"accept": SSE})
    assert events(response.text) == [("message", {"result": "a"}), ("end", {})]
    response = app.post("/predict/once", {"instances": [{"text": "a"}, {"text": "b"}]}, headers={"accept": NDJSON})
    assert lines(response) == [{"result": "a"}, {"result": "b"}]


def test_a_stream_takes_no_instances(app):
    assert app.refusal("/predict/tell", {"instances": [{"prompt": "a"}]})[0] == 422


def test_values_come_when_they_are_made(app):
    gate = threading.Event()

    def gated(text: str) -> Iterator[str]:
        yield text
        gate.wait(DEADLINE_S)
        yield text

    app.triton.bind(gated)

    async def read() -> list[str]:
        async with app.streaming.stream("POST", "/predict/gated", json={"text": "a"}) as response:
            found = []
            async for line in response.aiter_lines():
                found.append(line)
                gate.set()  # after the first line
            return found

    assert app.run(read) == ['{"result":"a"}'] * 2


@pytest.mark.parametrize("cls", [Endless, EndlessAsync])
@pytest.mark.parametrize("accept", [SSE, NDJSON])
def test_a_disconnect_closes_the_generator(app, cls, accept):
    endless = cls()
    app.triton.bind("endless", endless, replace=True)

    async def leave() -> None:
        async with app.streaming.stream(
            "POST", "/predict/endless", json={"text": "a"}, headers={"accept": accept}
        ) as response:
            async for _ in response.aiter_lines():
                break

    app.run(leave)
    assert endless.closed.wait(DEADLINE_S)


def test_a_disconnect_before_the_first_value_closes_the_generator(app):
    begun, closed, gate = threading.Event(), threading.Event(), threading.Event()

    async def silent(text: str) -> AsyncIterator[str]:
        try:
            begun.set()
            while not gate.is_set():
                await asyncio.sleep(0.01)
            yield text
        finally:
            closed.set()

    app.triton.bind(silent)
    leave_when(app, begun, "/predict/silent", {"text": "a"})
    assert closed.wait(DEADLINE_S)


def test_a_disconnect_ends_a_request_that_is_answered_once(app):
    waiting = Waiting()
    app.triton.bind("waiting", waiting, replace=True)
    try:
        leave_when(app, waiting.begun, "/predict/waiting", {"text": "a"})
        if app.way == "in process":
            assert waiting.cancelled.wait(DEADLINE_S)
        wait_for(lambda: app.predict("once", {"text": "still here"}) == {"result": "still here"}, "an answer")
    finally:
        waiting.gate.set()  # over HTTP the server goes on with a request whose client has gone


def leave_when(app: RunningApp, begun: threading.Event, path: str, fields: object) -> None:
    """Make a request, and disconnect once the callable has begun."""

    async def leave() -> None:
        call = asyncio.ensure_future(app.streaming.post(path, json=fields))
        await asyncio.to_thread(begun.wait, DEADLINE_S)
        await asyncio.sleep(0.1)  # the app begins to watch for a disconnect
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    app.run(leave)
