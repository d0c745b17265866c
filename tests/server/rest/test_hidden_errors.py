"""Messages of exceptions stay in the log, if the app is told so, in all ways to run it."""

import logging
import re
import time
from collections.abc import Iterator

import pytest

from pytriton.exceptions import ErrorCode, PyTritonRequestError
from pytriton.llm import ChatModel
from pytriton.rest import RestConfig
from pytriton.rest.errors import LINES_PER_S, MOST_LINES
from tests.server.processes import wait_for
from tests.server.rest.ways import WAYS, app_of

pytestmark = pytest.mark.either_proxy

SECRET = "/home/ada/weights.bin"
HIDDEN = "internal error; the log tells it, for request "


def failing(number: int) -> int:
    if number < 0:
        raise PyTritonRequestError("too small", code=ErrorCode.NOT_FOUND)
    raise RuntimeError(f"cannot read {SECRET}")


def streaming(number: int) -> Iterator[int]:
    yield number
    raise RuntimeError(f"cannot read {SECRET}")


def talking(request):
    raise RuntimeError(f"cannot read {SECRET}")


@pytest.fixture(scope="module", params=WAYS)
def app(request):
    with app_of(request.param, show_errors=False) as app:
        for model in (failing, streaming, ChatModel(talking)):
            app.triton.bind(model)
        app.triton.connect()
        yield app


@pytest.mark.parametrize("body", [{"number": 1}, {"instances": [{"number": 1}, {"number": 2}]}])
def test_a_client_gets_the_id_of_its_request_and_the_log_the_message(app, caplog, body):
    response = app.post("/predict/failing", body, headers={"x-request-id": "seven"})
    assert (response.status_code, response.headers["x-request-id"]) == (500, "seven")
    assert response.json() == {"error": {"code": "INTERNAL", "message": f"{HIDDEN}seven"}}
    if app.way in ("in process", "mounted"):  # others have processes whose log is on standard error
        told = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        assert any(re.search(rf"request seven: .*cannot read {SECRET}", each) for each in told)


def test_the_native_edge_writes_the_message_to_the_servers_log(app, caplog):
    if app.way != "native":
        pytest.skip("the application answers")
    caplog.set_level(logging.WARNING, "pytriton.server")
    app.post("/predict/failing", {"number": 1}, headers={"x-request-id": "logged"})
    wait_for(lambda: f"request logged: RuntimeError: cannot read {SECRET}" in caplog.text, "the line")


def test_a_client_that_makes_requests_fail_does_not_fill_the_servers_log(app, caplog):
    if app.way != "native":
        pytest.skip("the application answers")
    caplog.set_level(logging.WARNING, "pytriton.server")
    started = time.monotonic()
    for _ in range(3 * MOST_LINES):
        assert app.post("/predict/failing", {"number": 1}).status_code == 500
    time.sleep(2 / LINES_PER_S)
    app.post("/predict/failing", {"number": 1}, headers={"x-request-id": "last"})
    wait_for(lambda: "request last: " in caplog.text, "the last line")
    lines = sum(f"RuntimeError: cannot read {SECRET}" in each for each in caplog.messages)
    assert lines <= MOST_LINES + (time.monotonic() - started + 1) * LINES_PER_S
    assert re.search(r"\d+ more requests failed; their messages were left out", caplog.text)


def test_an_id_is_made_for_a_request_without_one(app):
    response = app.post("/predict/failing", {"number": 1})
    assert response.json()["error"]["message"] == HIDDEN + response.headers["x-request-id"]


def test_errors_for_clients_are_told(app):
    status, error = app.refusal("/predict/failing", {"number": -1})
    assert (status, error["message"]) == (404, "too small")
    assert app.refusal("/predict/failing", {"number": "x"})[0] == 422


def test_streams_and_openais_routes_hide_them_too(app):
    lines = app.post("/predict/streaming", {"number": 3}, headers={"accept": "application/x-ndjson"}).text
    assert '{"result":3}' in lines
    chat = {"model": "talking", "messages": [{"role": "user", "content": "a"}]}
    said = app.post("/v1/chat/completions", chat)
    assert said.status_code == 500
    for text in (lines, said.text):
        assert HIDDEN in text
        assert SECRET not in text


@pytest.mark.parametrize(
    ("address", "shown"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), (None, False)],
)
def test_errors_are_shown_by_default_where_the_app_listens_to_this_machine_alone(address, shown):
    config = RestConfig(address=address)
    assert (config.shows_errors(), config.for_edge()["predict_shows_errors"]) == (shown, shown)
    for chosen in True, False:
        assert RestConfig(address=address, show_errors=chosen).shows_errors() is chosen
