"""The routes of the pages: what they tell, and whom they refuse."""

from __future__ import annotations

import json

import pytest

from pytriton.inprocess import Triton as InprocessTriton
from pytriton.rest.pages.routes import FILES

pytestmark = pytest.mark.either_proxy

MOST_PAGE_BYTES = 200 * 1024


def shout(text: str) -> str:
    return text.upper()


@pytest.fixture(scope="module", autouse=True)
def model(front):
    front.triton.bind(shout)


def token_of(front) -> dict[str, str]:
    return {"Authorization": f"Bearer {front.triton.get_access_token()}"}


def test_the_page_has_no_inline_script_and_may_load_nothing_from_elsewhere(front):
    page = front.get("/")
    assert page.status_code == 200
    policy = dict(each.split(" ", 1) for each in page.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert page.headers["x-frame-options"] == "DENY"
    assert page.text.count("<script") == 1
    assert "http" not in page.text
    root = "/models" if front.way == "mounted" else ""
    assert f'src="{root}/pages/static/app.js"' in page.text


def test_the_files_are_small_and_others_are_not_found(front):
    total = len(front.get("/").content)
    for name in FILES:
        response = front.get(f"/pages/static/{name}")
        assert response.status_code == 200
        assert response.headers["x-content-type-options"] == "nosniff"
        total += len(response.content)
    assert total < MOST_PAGE_BYTES
    for name in ("index.html", "..%2froutes.py", "other.js"):
        assert front.get(f"/pages/static/{name}").status_code == 404


def test_models_are_told_with_their_signature_and_an_example(front):
    (found,) = [each for each in front.get("/pages/models").json() if each["name"] == "shout"]
    assert found["inputs"] == {"text": {"type": "string"}}
    assert found["required"] == ["text"]
    assert found["example"] == {"input": {"text": "text"}}


def test_a_sample_has_the_models_and_their_figures(front):
    client = front.streaming if front.way == "in process" else front.client

    async def first_with(condition):
        async with client.stream("GET", "/pages/live") as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    sample = json.loads(line.removeprefix("data: "))
                    if condition(sample):
                        return sample
        raise AssertionError("the stream has ended")

    before = front.run(lambda: first_with(lambda sample: "shout" in sample["models"]))
    assert before["live"]
    assert before["ready"]
    assert before["problem"] == ""
    for _ in range(3):
        front.predict("shout", {"text": "a"})
    total = before["models"]["shout"]["total"] + 3
    after = front.run(lambda: first_with(lambda sample: sample["models"]["shout"]["total"] >= total))
    shown = after["models"]["shout"]
    assert [each["state"] for each in shown["versions"]] == ["READY"]
    assert "host" in {each["name"] for each in after["processes"]}
    history = front.get("/pages/history").json()
    assert history["models"]["shout"]["time"]
    assert front.get("/pages/history?range=day").json()["models"]["shout"]["rate"]


def test_batches_and_the_last_requests_of_a_model_are_told(front):
    front.predict("shout", {"text": "a"})

    async def watch():
        client = front.streaming if front.way == "in process" else front.client
        async with client.stream("GET", "/pages/live") as response:
            async for line in response.aiter_lines():
                if line.startswith("data: ") and json.loads(line[6:])["models"].get("shout", {}).get("total"):
                    return

    front.run(watch)
    found = front.get("/pages/batches?model=shout").json()
    assert found["sizes"][0]["rows"] == 1
    assert {each["status"] for each in found["requests"]} == {200}
    assert front.get("/pages/batches?model=other").json() == {"sizes": [], "requests": []}


def test_workers_are_told_and_their_errors_are_for_operators(front):
    (found,) = [each for each in front.get("/pages/workers").json()["workers"] if each["model"] == "shout"]
    assert (found["kind"], found["state"], found["restarts"]) == ("thread", "ready", 0)


def test_the_log_and_commands_need_the_servers_token(front):
    command = {"command": "unload", "model": "shout"}
    wanted = (403, "FORBIDDEN") if isinstance(front.triton, InprocessTriton) else (401, "UNAUTHORIZED")
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "token=x"}):
        status, error = front.refusal("/pages/commands", command, headers=headers)
        assert (status, error["code"]) == wanted
        assert front.get("/pages/log", headers=headers).status_code == wanted[0]
    assert front.predict("shout", {"text": "still there"}) == {"result": "STILL THERE"}
    assert front.get("/pages/commands").status_code == 405


def test_commands_of_pages_of_other_sites_are_refused_even_with_the_token(front):
    if front.way != "own process":
        return  # in another application, that has its own rules; in process, there is no token
    headers = {**token_of(front), "Sec-Fetch-Site": "cross-site", "Origin": "https://example.com"}
    status, error = front.refusal("/pages/commands", {"command": "unload", "model": "shout"}, headers=headers)
    assert (status, error["code"]) == (403, "FORBIDDEN")
    assert front.predict("shout", {"text": "a"}) == {"result": "A"}


def test_commands_with_the_token_are_carried_out_or_refused_with_a_reason(front):
    if front.way == "in process":
        return  # there is no token

    def echo(text: str) -> str:
        return text

    front.triton.bind(echo)
    headers = token_of(front)
    refused = front.refusal("/pages/commands", {"command": "scale", "model": "echo", "count": 2}, headers=headers)
    assert refused[0] == 409
    assert "Processes" in refused[1]["message"]
    assert front.refusal("/pages/commands", {"command": "restart", "model": "echo"}, headers=headers)[0] == 409
    for wrong in (
        {"command": "exec"},
        {"command": ["serve"]},
        {"command": "serve"},
        {"command": "serve", "version": "1"},
    ):
        assert front.refusal("/pages/commands", {**wrong, "model": "echo"}, headers=headers)[0] == 400
    refused = front.refusal("/pages/commands", {"command": "serve", "model": "echo", "version": 2}, headers=headers)
    assert refused[0] == 409
    assert "version 2 of model 'echo' is not bound" in refused[1]["message"]
    assert front.post("/pages/commands", {"command": "unload", "model": "echo"}, headers=headers).status_code == 200
    assert front.refusal("/predict/echo", {"text": "a"})[0] in (404, 503)
    records = front.get("/pages/log", headers=headers).json()["records"]
    assert records is not None
    assert front.get(f"/pages/log?after={2**40}", headers=headers).json()["records"] == []
