"""API keys: which models they allow, and how much in a minute, in all processes of a front together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import httpx
import openai
import pytest

from pytriton.llm import ChatModel, ChatRequest
from pytriton.rest import RestConfig
from pytriton.triton import Triton
from tests.server.conftest import LOCALHOST, local_config
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S

pytestmark = pytest.mark.either_proxy

KEYS = [
    {"name": "reader", "models": ["par*"]},
    {"name": "few requests", "requests_per_minute": 3},
    {"name": "few tokens", "tokens_per_minute": 5},
    {"name": "few guessed tokens", "tokens_per_minute": 5},
    {"name": "no models", "models": []},
]
USER = [{"role": "user", "content": "a b"}]


def secret(name: str) -> str:
    return f"sk-{name}"


def parrot(request: ChatRequest) -> Iterator[str]:
    yield request.messages[-1]["content"]


def shout(text: str) -> str:
    return text.upper()


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    """A front of two processes with the keys, which are in a file, beside an access token."""
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    hashed = [{**key, "sha256": hashlib.sha256(secret(key["name"]).encode()).hexdigest()} for key in KEYS]
    path.write_text(json.dumps(hashed))
    with reserved_ports(1) as (port,), local_config() as config:
        rest = RestConfig(port=port, address=LOCALHOST, access_token="root", api_keys=path, processes=2)
        with Triton(config=config, rest=rest) as triton:
            triton.bind(ChatModel(parrot, tokenizer=str.split))
            triton.bind("uncounted", ChatModel(parrot))
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
    return httpx.post(f"{url}{path}", json=body, headers={"Authorization": f"Bearer {key}"}, trust_env=False)


def test_the_access_token_allows_everything(url, client_of):
    client = client_of("root")
    assert [model.id for model in client.models.list()] == ["parrot", "uncounted"]
    assert client.chat.completions.create(model="parrot", messages=USER).choices[0].message.content == "a b"
    assert post(url, "/predict/shout", "root", {"text": "a"}).json() == {"result": "A"}


@pytest.mark.parametrize("key", ["sk-unknown", "rooty", "é"])
def test_an_unknown_key_is_401(url, key):
    response = httpx.get(
        f"{url}/v1/models", headers={b"authorization": b"Bearer " + key.encode("latin-1")}, trust_env=False
    )
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert httpx.get(f"{url}/health/live", trust_env=False).status_code == 200


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


def test_keys_come_from_the_environment(monkeypatch):
    digest = hashlib.sha256(b"x").hexdigest()
    monkeypatch.setenv("PYTRITON_REST_API_KEYS", json.dumps([{"name": "a", "sha256": digest}]))
    (key,) = RestConfig.from_env().keys()
    assert (key.name, key.sha256) == ("a", digest)
