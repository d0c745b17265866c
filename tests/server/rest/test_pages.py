"""The routes of the pages: what they tell, and whom they refuse."""

from __future__ import annotations

import asyncio
import json
import socket
import threading

import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from pytriton import Pipeline, Split, Step
from pytriton.inprocess import Triton as InprocessTriton
from pytriton.rest.pages.routes import FILES
from tests.server.processes import DEADLINE_S

pytestmark = pytest.mark.either_proxy

MOST_PAGE_BYTES = 200 * 1024


def shout(text: str) -> str:
    return text.upper()


@pytest.fixture(scope="module", autouse=True)
def model(app):
    app.triton.bind(shout)
    app.triton.bind("twice", Pipeline(Step("shout", outputs={"result": "loud"}), "shout"))


def token_of(app) -> dict[str, str]:
    if app.way == "in process":
        return {}  # there is no token
    return {"Authorization": f"Bearer {app.triton.get_access_token()}"}


def test_the_page_has_no_inline_script_and_may_load_nothing_from_elsewhere(app):
    page = app.get("/")
    assert page.status_code == 200
    policy = dict(each.split(" ", 1) for each in page.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert page.headers["x-frame-options"] == "DENY"
    assert page.text.count("<script") == 1
    assert "http" not in page.text
    root = "/models" if app.way == "mounted" else ""
    assert f'src="{root}/pages/static/app.js"' in page.text


def test_the_files_are_small_and_others_are_not_found(app):
    total = len(app.get("/").content)
    for name in FILES:
        response = app.get(f"/pages/static/{name}")
        assert response.status_code == 200
        assert response.headers["x-content-type-options"] == "nosniff"
        total += len(response.content)
    assert total < MOST_PAGE_BYTES
    for name in ("index.html", "..%2froutes.py", "other.js"):
        assert app.get(f"/pages/static/{name}").status_code == 404


def test_models_are_told_with_their_signature_and_an_example(app):
    (found,) = [each for each in app.get("/pages/models").json() if each["name"] == "shout"]
    assert found["inputs"] == {"text": {"type": "string"}}
    assert found["required"] == ["text"]
    assert found["example"] == {"input": {"text": "text"}}
    assert found["steps"] == []
    (found,) = [each for each in app.get("/pages/models").json() if each["name"] == "twice"]
    first = {"model": "shout", "inputs": {"text": "text"}, "outputs": {"result": "0.loud"}}
    second = {"model": "shout", "inputs": {"text": "0.loud"}, "outputs": {"result": "result"}}
    assert found["steps"] == [first, second]


def test_a_sample_has_the_models_and_their_figures(app):
    client = app.streaming if app.way == "in process" else app.client

    async def first_with(condition):
        async with client.stream("GET", "/pages/live", headers=token_of(app)) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    sample = json.loads(line.removeprefix("data: "))
                    if condition(sample):
                        return sample
        raise AssertionError("the stream has ended")

    # The first samples may be of a server that has not loaded all models yet.
    before = app.run(lambda: first_with(lambda sample: sample["ready"] and "shout" in sample["models"]))
    assert before["live"]
    assert before["problem"] == ""
    for _ in range(3):
        app.predict("shout", {"text": "a"})
    total = before["models"]["shout"]["total"] + 3
    after = app.run(lambda: first_with(lambda sample: sample["models"]["shout"]["total"] >= total))
    shown = after["models"]["shout"]
    assert [each["state"] for each in shown["versions"]] == ["READY"]
    assert "host" in {each["name"] for each in after["processes"]}
    history = app.get("/pages/history", headers=token_of(app)).json()
    assert history["models"]["shout"]["time"]
    assert app.get("/pages/history?range=day", headers=token_of(app)).json()["models"]["shout"]["rate"]


def test_batches_and_the_last_requests_of_a_model_are_told(app):
    app.predict("shout", {"text": "a"})

    async def watch():
        client = app.streaming if app.way == "in process" else app.client
        async with client.stream("GET", "/pages/live", headers=token_of(app)) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: ") and json.loads(line[6:])["models"].get("shout", {}).get("total"):
                    return

    app.run(watch)
    found = app.get("/pages/batches?model=shout", headers=token_of(app)).json()
    assert found["sizes"][0]["rows"] == 1
    reasons = app.get("/pages/batches", headers=token_of(app)).json()["reasons"]
    assert reasons.get("shout", {}).keys() == found["reasons"].keys()
    assert {each["status"] for each in found["requests"]} == {200}
    assert app.get("/pages/batches?model=other", headers=token_of(app)).json() == {
        "sizes": [],
        "reasons": {},
        "learned": [],
        "refused": 0,
        "requests": [],
    }


@pytest.mark.parametrize("app", ["native"], indirect=True, scope="module")
def test_requests_that_the_edge_refuses_count_as_those_of_the_app(app):
    config = app.triton._config
    seen = set()

    async def watch(watching):
        async with app.client.stream("GET", "/pages/live", headers=token_of(app)) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    seen.update(json.loads(line.removeprefix("data: "))["refused"])
                    watching.set()
                    if seen >= {"400", "403", "404", "413", "422"}:
                        return

    watching = threading.Event()
    watch_all = asyncio.run_coroutine_threadsafe(watch(watching), app.loop)
    assert watching.wait(DEADLINE_S)
    for body, status in ((b"2\r\n\r\n{}", b"400"), (b"8589934592\r\n\r\n", b"413")):
        with socket.create_connection(("127.0.0.1", config.http_port), DEADLINE_S) as connection:
            connection.sendall(b"POST /v2/models/shout/infer HTTP/1.1\r\nHost: h\r\nContent-Length: " + body)
            assert connection.recv(12) == b"HTTP/1.1 " + status
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{config.grpc_port}") as client:
        with pytest.raises(InferenceServerException, match="restricted"):
            client.get_inference_statistics()  # 403
        with pytest.raises(InferenceServerException, match="NOT_FOUND"):
            client.get_model_config("other")  # 404
    assert app.refusal("/predict/shout", {"text": 1})[0] == 422
    watch_all.result(DEADLINE_S)
    assert 'route="/v2"' not in app.get("/metrics", headers=token_of(app)).text


def test_workers_are_told_and_their_errors_are_for_operators(app):
    (found,) = [
        each for each in app.get("/pages/workers", headers=token_of(app)).json()["workers"] if each["model"] == "shout"
    ]
    assert (found["kind"], found["state"], found["restarts"]) == ("thread", "ready", 0)


def test_the_log_and_commands_need_the_servers_token(app):
    command = {"command": "unload", "model": "shout"}
    wanted = (403, "FORBIDDEN") if isinstance(app.triton, InprocessTriton) else (401, "UNAUTHORIZED")
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "token=x"}):
        status, error = app.refusal("/pages/commands", command, headers=headers)
        assert (status, error["code"]) == wanted
        assert app.get("/pages/log", headers=headers).status_code == wanted[0]
    assert app.predict("shout", {"text": "still there"}) == {"result": "STILL THERE"}
    assert app.get("/pages/commands", headers=token_of(app)).status_code == 405


def test_commands_of_pages_of_other_sites_are_refused_even_with_the_token(app):
    if app.way == "in process":
        return  # there is no token
    headers = {**token_of(app), "Sec-Fetch-Site": "cross-site", "Origin": "https://example.com"}
    status, error = app.refusal("/pages/commands", {"command": "unload", "model": "shout"}, headers=headers)
    assert (status, error["code"]) == (403, "FORBIDDEN")
    assert app.predict("shout", {"text": "a"}) == {"result": "A"}


def test_the_weights_of_a_split_are_shown_and_changed_with_the_token(app):
    if app.way == "in process":
        return  # there is no token
    headers = token_of(app)
    app.triton.bind("which", Split({"shout": 1}))
    try:
        weigh = {"command": "weigh", "model": "which", "weights": {"shout": 5}}
        assert app.refusal("/pages/commands", weigh)[0] == 401
        assert app.post("/pages/commands", weigh, headers=headers).status_code == 200
        app.predict("which", {"text": "a"})
        (shown,) = [
            each for each in app.get("/pages/workers", headers=headers).json()["workers"] if each["model"] == "which"
        ]
        assert (shown["weights"], shown["counts"]) == ({"shout": 5}, {"shout": 1})
        for wrong in ({"other": 1}, {"shout": -1}, {"shout": 0}, {"shout": None}, [1], 1, None):
            status, error = app.refusal("/pages/commands", {**weigh, "weights": wrong}, headers=headers)
            assert (status, "weight" in error["message"]) == (409, True), wrong
        status, error = app.refusal("/pages/commands", {**weigh, "model": "shout"}, headers=headers)
        assert (status, "has no weights" in error["message"]) == (409, True)
    finally:
        app.triton.unbind("which")


def test_commands_with_the_token_are_carried_out_or_refused_with_a_reason(app):
    if app.way == "in process":
        return  # there is no token

    def echo(text: str) -> str:
        return text

    app.triton.bind(echo)
    headers = token_of(app)
    refused = app.refusal("/pages/commands", {"command": "scale", "model": "echo", "count": 2}, headers=headers)
    assert refused[0] == 409
    assert "Processes" in refused[1]["message"]
    assert app.refusal("/pages/commands", {"command": "restart", "model": "echo"}, headers=headers)[0] == 409
    for wrong in (
        {"command": "exec"},
        {"command": ["serve"]},
        {"command": "serve"},
        {"command": "serve", "version": "1"},
    ):
        assert app.refusal("/pages/commands", {**wrong, "model": "echo"}, headers=headers)[0] == 400
    refused = app.refusal("/pages/commands", {"command": "serve", "model": "echo", "version": 2}, headers=headers)
    assert refused[0] == 409
    assert "version 2 of model 'echo' is not bound" in refused[1]["message"]
    assert app.post("/pages/commands", {"command": "unload", "model": "echo"}, headers=headers).status_code == 200
    assert app.refusal("/predict/echo", {"text": "a"})[0] in (404, 503)
    records = app.get("/pages/log", headers=headers).json()["records"]
    assert records is not None
    assert app.get(f"/pages/log?after={2**40}", headers=headers).json()["records"] == []
