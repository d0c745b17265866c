"""API keys: which models they allow, and how much in a minute, in all processes of an app together."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import TypeVar

import httpx
import openai
import pytest

from pytriton.llm import ChatModel, ChatRequest
from pytriton.rest import RestConfig
from pytriton.triton import Triton
from tests.server.conftest import LOCALHOST, local_config
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S, wait_for

pytestmark = pytest.mark.either_proxy

ATTEMPTS = 4
KEYS = [
    {"name": "reader", "models": ["par*"]},
    {"name": "few requests", "requests_per_minute": 3},
    {"name": "few tokens", "tokens_per_minute": 5},
    {"name": "few guessed tokens", "tokens_per_minute": 5},
    {"name": "no models", "models": []},
    *(
        {"name": f"{name} {attempt}", "tokens_per_minute": 40}
        for name in ("streaming", "whole", "predicting")
        for attempt in range(ATTEMPTS)
    ),
    {"name": "leaving", "tokens_per_minute": 100_000},
    {"name": "leaving a whole answer", "tokens_per_minute": 100_000},
    {"name": "leaving predict", "tokens_per_minute": 100_000},
    {"name": "asking for much", "tokens_per_minute": 40},
]
T = TypeVar("T")

USER = [{"role": "user", "content": "a b"}]


def secret(name: str) -> str:
    return f"sk-{name}"


def parrot(request: ChatRequest) -> Iterator[str]:
    yield request.messages[-1]["content"]


async def talk(request: ChatRequest) -> AsyncIterator[str]:
    for _ in range(600):
        yield "word "
        await asyncio.sleep(0.002)


def shout(text: str) -> str:
    return text.upper()


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    """An app of two processes with the keys, which are in a file, beside an access token."""
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    hashed = [{**key, "sha256": hashlib.sha256(secret(key["name"]).encode()).hexdigest()} for key in KEYS]
    path.write_text(json.dumps(hashed))
    with reserved_ports(1) as (port,), local_config() as config:
        rest = RestConfig(port=port, address=LOCALHOST, access_token="root", api_keys=path, processes=2)
        with Triton(config=config, rest=rest) as triton:
            triton.bind(ChatModel(parrot, tokenizer=str.split))
            triton.bind("uncounted", ChatModel(parrot))
            triton.bind(ChatModel(talk))
            triton.bind(shout)
            yield f"http://{LOCALHOST}:{port}"


@pytest.fixture
def client_of(url):
    """A function that makes a client of a key."""
    clients = []

    def make(key: str) -> openai.OpenAI:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=DEADLINE_S)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


def post(url: str, path: str, key: str, body: object) -> httpx.Response:
    """A request on a connection of its own, which any process may answer."""
    return httpx.post(
        f"{url}{path}", json=body, headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=DEADLINE_S
    )


def test_the_access_token_allows_everything(url, client_of):
    client = client_of("root")
    assert [model.id for model in client.models.list()] == ["parrot", "talk", "uncounted"]
    assert client.chat.completions.create(model="parrot", messages=USER).choices[0].message.content == "a b"
    assert post(url, "/predict/shout", "root", {"text": "a"}).json() == {"result": "A"}


@pytest.mark.parametrize("key", ["sk-unknown", "rooty", "é"])
def test_an_unknown_key_is_401(url, key):
    response = httpx.get(
        f"{url}/v1/models",
        headers={b"authorization": b"Bearer " + key.encode("latin-1")},
        trust_env=False,
        timeout=DEADLINE_S,
    )
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.json()["error"]["message"].endswith("; the one that was sent is wrong")
    missing = httpx.get(f"{url}/v1/models", trust_env=False, timeout=DEADLINE_S)
    assert (missing.status_code, missing.json()["error"]["code"]) == (401, "invalid_api_key")
    assert missing.json()["error"]["message"].endswith("as the header 'Authorization: Bearer <token>'")
    assert httpx.get(f"{url}/health/live", trust_env=False, timeout=DEADLINE_S).status_code == 200


def test_a_key_allows_its_models_alone(url, client_of):
    client = client_of(secret("reader"))
    assert [model.id for model in client.models.list()] == ["parrot"]
    assert client.chat.completions.create(model="parrot", messages=USER).choices
    with pytest.raises(openai.PermissionDeniedError, match="'reader' may not call the model 'uncounted'"):
        client.chat.completions.create(model="uncounted", messages=USER)
    with pytest.raises(openai.PermissionDeniedError):
        client.models.retrieve("uncounted")
    for path in ("/predict/shout", "/predict/shout/1", "/v1/models/shout:predict"):
        assert post(url, path, secret("reader"), {"text": "a"}).status_code == 403
    assert [*client_of(secret("no models")).models.list()] == []


def test_requests_are_limited_in_all_processes_together(url):
    key, body = secret("few requests"), {"model": "parrot", "messages": USER}
    answers = [post(url, "/v1/chat/completions", key, body) for _ in range(12)]
    answered = [each for each in answers if each.status_code == 200]
    assert 3 <= len(answered) <= 6  # the minute of the clock may change once
    (refused, *_) = (each for each in answers if each.status_code == 429)
    assert refused.json()["error"]["type"] == "rate_limit_exceeded"
    assert 0 < int(refused.headers["retry-after"]) <= 61
    assert refused.headers["x-ratelimit-limit-requests"] == "3"
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert refused.headers["x-ratelimit-reset-requests"].endswith("s")
    assert "x-ratelimit-limit-tokens" not in refused.headers


@pytest.mark.parametrize(("name", "model"), [("few tokens", "parrot"), ("few guessed tokens", "uncounted")])
@pytest.mark.parametrize("stream", [False, True])
def test_tokens_are_limited(url, name, model, stream):
    body = {"model": model, "messages": USER, "stream": stream}
    statuses = [post(url, "/v1/chat/completions", secret(name), body).status_code for _ in range(6)]
    assert 429 in statuses[1:]


def words(response: httpx.Response) -> int:
    return response.text.count("word ")


def in_one_minute(name: str, act: Callable[[str], T]) -> T:
    """What was done with a fresh key, within one minute of the clock: after it the key would have all tokens again."""
    for attempt in range(ATTEMPTS):
        minute = time.time() // 60
        result = act(secret(f"{name} {attempt}"))
        if time.time() // 60 == minute:
            return result
    raise AssertionError("each attempt took more than a minute")


def many_chats(url: str, name: str, stream: bool) -> list[httpx.Response]:
    """The good answers to sixty chats at once; the others were refused."""
    body = {"model": "talk", "messages": USER, "stream": stream}

    def chat(key: str) -> list[httpx.Response]:
        with ThreadPoolExecutor(20) as pool:
            return [*pool.map(lambda _: post(url, "/v1/chat/completions", key, body), range(60))]

    responses = in_one_minute(name, chat)
    refused = [each for each in responses if each.status_code == 429]
    assert all(int(each.headers["retry-after"]) <= 61 for each in refused)
    answered = [each for each in responses if each.status_code == 200]
    assert len(refused) + len(answered) == 60
    return answered


def test_many_chats_at_once_use_no_more_tokens_than_a_key_has(url):
    answered = many_chats(url, "streaming", stream=True)
    assert 1 <= len(answered) <= 2
    assert 30 <= sum(map(words, answered)) <= 40  # until there are no more


def test_of_many_chats_at_once_none_is_answered_whole_beyond_the_tokens_of_a_key(url):
    assert many_chats(url, "whole", stream=False) == []


def test_predict_uses_up_tokens_as_well(url):
    text = json.dumps({"model": "talk", "messages": USER})
    calls = {
        "/predict/shout": {"text": "a"},
        "/v1/models/talk:predict": {"instances": [{"request": text}]},
        "/predict/talk": {"request": text},
    }

    def statuses(key: str) -> list[list[int]]:
        return [[post(url, path, key, body).status_code for path, body in calls.items()] for _ in range(2)]

    # Tokens are left at first; a model that streams takes no instances.
    assert in_one_minute("predicting", statuses) == [[200, 422, 200], [429, 429, 429]]


def test_a_request_for_more_tokens_than_a_key_has_is_refused_before_the_model_is_called(url):
    key = secret("asking for much")
    body = {"model": "parrot", "messages": USER, "max_tokens": 40}
    response = post(url, "/v1/chat/completions", key, body)
    assert response.status_code == 429
    assert "this needs 41" in response.json()["error"]["message"]
    assert response.headers["x-ratelimit-remaining-tokens"] == "40"
    assert post(url, "/v1/chat/completions", key, {**body, "max_tokens": 39}).status_code == 200


@pytest.mark.parametrize(
    ("name", "path", "body", "pieces"),
    [
        ("leaving", "/v1/chat/completions", {"model": "talk", "messages": USER, "stream": True}, 50),
        ("leaving a whole answer", "/v1/chat/completions", {"model": "talk", "messages": USER}, 0),
        ("leaving predict", "/predict/talk", {"request": json.dumps({"model": "talk", "messages": USER})}, 50),
    ],
)
def test_an_answer_whose_client_goes_counts_as_far_as_it_was_produced(url, name, path, body, pieces):
    headers = {"Authorization": f"Bearer {secret(name)}"}

    def left() -> int:
        answer = post(url, "/v1/chat/completions", secret(name), {"model": "missing", "messages": USER})
        return int(answer.headers["x-ratelimit-remaining-tokens"])

    minute = time.time() // 60
    assert left() == 100_000
    if pieces:
        with (
            httpx.Client(trust_env=False, timeout=DEADLINE_S) as client,
            client.stream("POST", url + path, json=body, headers=headers) as response,
        ):
            for _ in zip(range(pieces), response.iter_lines(), strict=False):
                pass
    else:  # a close without a reset would be noticed when the answer is sent: the client could have closed its half
        connection = HTTPConnection(LOCALHOST, httpx.URL(url).port, timeout=DEADLINE_S)
        connection.request("POST", path, json.dumps(body), {**headers, "Content-Type": "application/json"})
        wait_for(lambda: left() < 100_000, "the tokens of the answer are reserved")
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    reserved = 257

    def is_settled() -> bool:
        return 100_000 - reserved < left() < 100_000 or time.time() // 60 > minute  # of the clock, which forgets

    wait_for(is_settled, "the tokens of the answer are counted")


def test_keys_come_from_the_environment(monkeypatch):
    digest = hashlib.sha256(b"x").hexdigest()
    monkeypatch.setenv("PYTRITON_REST_API_KEYS", json.dumps([{"name": "a", "sha256": digest}]))
    (key,) = RestConfig.from_env().keys()
    assert (key.name, key.sha256) == ("a", digest)


def test_a_key_for_some_models_learns_no_names_of_others(url):
    with httpx.Client(
        base_url=url, headers={"Authorization": f"Bearer {secret('reader')}"}, timeout=DEADLINE_S
    ) as client:
        for path in ("/pages/models", "/v1/models", "/openapi.json"):
            text = client.get(path).text
            assert "parrot" in text
            assert "uncounted" not in text
        assert client.get("/pages/models?missing=partial").json() == {"reason": "there is no model 'partial'"}
        missing = client.post("/predict/partial", json={})
        assert (missing.status_code, missing.json()["error"]["message"]) == (404, "there is no model 'partial'")
        chat = client.post("/v1/chat/completions", json={"model": "partial", "messages": USER})
        assert chat.status_code == 404
        assert "uncounted" not in chat.text
        assert client.get("/metrics").status_code == 401
    with httpx.Client(base_url=url, headers={"Authorization": "Bearer root"}, timeout=DEADLINE_S) as client:
        assert "'uncounted'" in client.post("/predict/partial", json={}).text
        assert "'uncounted'" in client.get("/pages/models?missing=partial").text
        assert client.get("/metrics").status_code == 200
