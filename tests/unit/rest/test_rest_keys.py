"""API keys as they are written, and what they may still do."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from contextlib import ExitStack, suppress

import pytest

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.llm.requests import ChatRequest, CompletionRequest, EmbeddingRequest
from pytriton.rest import ApiKey, RestConfig
from pytriton.rest.errors import RestError
from pytriton.rest.keys import memory_bytes, read_keys
from pytriton.rest.permits import KeyRing, Permit, may_call
from pytriton.rest.tokens import STEP, Estimate, Spending, of_request
from pytriton.rest.waits import ClientDisconnectedError

DIGEST = hashlib.sha256(b"secret").hexdigest()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, "lacks 'name'"),
        ({"name": "a"}, "lacks 'sha256'"),
        ({"name": "a", "sha256": "secret"}, "64 hexadecimal digits"),
        ({"name": "a", "sha256": DIGEST.upper()}, "64 hexadecimal digits"),
        ({"name": "", "sha256": DIGEST}, "needs a name"),
        ({"name": "a", "sha256": DIGEST, "models": "m"}, "models is a list"),
        ({"name": "a", "sha256": DIGEST, "requests_per_minute": 0}, "requests_per_minute"),
        ({"name": "a", "sha256": DIGEST, "tokens_per_minute": True}, "tokens_per_minute"),
        ({"name": "a", "sha256": DIGEST, "model": []}, "has 'model'; it can have name"),
        ("a", "not a list of objects"),
    ],
)
def test_a_wrong_key_is_refused(entry, message):
    with pytest.raises(PyTritonBadParameterError, match=message):
        read_keys(json.dumps([entry]))


def test_keys_come_from_a_file(tmp_path):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps([{"name": "a", "sha256": DIGEST}]))
    assert read_keys(path) == read_keys(str(path)) == (ApiKey(name="a", sha256=DIGEST),)
    with pytest.raises(PyTritonBadParameterError, match="cannot be read"):
        read_keys(tmp_path / "other.json")
    path.write_text("{}")
    with pytest.raises(PyTritonBadParameterError, match="not a list of objects"):
        read_keys(path)


def test_keys_differ_in_name_and_text():
    key, other = ApiKey(name="a", sha256=DIGEST), ApiKey(name="b", sha256=DIGEST)
    with pytest.raises(PyTritonBadParameterError, match="same sha256: 'a', 'b'"):
        RestConfig(api_keys=[key, other]).validate()


def test_the_keys_are_not_in_the_representation():
    assert DIGEST not in repr(RestConfig(api_keys=[ApiKey(name="a", sha256=DIGEST)]))


def test_a_key_is_found_by_its_text():
    ring = KeyRing([ApiKey(name="a", sha256=DIGEST, models=["m*"])])
    permit = ring.find(b"secret")
    assert permit is not None
    assert permit.key.name == "a"
    assert ring.find(b"other") is None
    assert ring.find(b"") is None
    scope = {"state": {"permit": permit}}
    assert may_call(scope, "model")
    assert not may_call(scope, "other")
    assert may_call({"state": {}}, "other")


def test_processes_count_together_and_forget_after_a_minute(monkeypatch):
    keys = [ApiKey(name="other", sha256="0" * 64), ApiKey(name="a", sha256=DIGEST, requests_per_minute=3)]
    file = os.memfd_create("limits")
    os.truncate(file, memory_bytes(len(keys), 2))
    rings = [KeyRing(keys), KeyRing(keys)]
    for index, ring in enumerate(rings):
        ring.share(file, 2, index)
    os.close(file)
    now = 600.0
    monkeypatch.setattr("time.time", lambda: now)
    permits = [ring.find(b"secret") for ring in rings]
    for index in (0, 1, 1):
        permits[index].take()
    now = 630.0
    with pytest.raises(RestError, match=r"its 3 requests of this minute; wait 30 s") as caught:
        permits[0].take()
    assert caught.value.status == 429
    assert caught.value.headers["x-ratelimit-reset-requests"] == "30.000s"
    now = 660.0
    permits[0].take()
    assert permits[1].headers()["x-ratelimit-remaining-requests"] == "2"


def permit_of_a_key(tokens: int) -> Permit:
    permit = KeyRing([ApiKey(name="a", sha256=DIGEST, tokens_per_minute=tokens)]).find(b"secret")
    assert permit is not None
    return permit


@pytest.fixture
def noon(monkeypatch) -> None:
    monkeypatch.setattr("time.time", lambda: 600.0)


@pytest.mark.usefixtures("noon")
def test_tokens_count_after_the_request():
    permit = permit_of_a_key(5)
    permit.take()
    permit.settle(0, 5)
    with pytest.raises(RestError, match="its 5 tokens"):
        permit.take()


@pytest.mark.usefixtures("noon")
def test_tokens_that_are_reserved_are_not_given_twice():
    permit = permit_of_a_key(100)
    assert permit.reserve(10, 60) == 60
    assert permit.reserve(10, 60) == 40
    assert permit.headers()["x-ratelimit-remaining-tokens"] == "0"
    with pytest.raises(RestError, match="of which 0 are left; this needs 1") as caught:
        permit.reserve(1, 60)
    assert caught.value.status == 429
    permit.settle(60, 30)
    assert permit.reserve(30, 30) == 30
    permit.settle(40, 0)
    permit.settle(30, 30)
    assert permit.headers()["x-ratelimit-remaining-tokens"] == "40"


def test_a_reservation_holds_in_the_next_minute_too(monkeypatch):
    now = 659.0
    monkeypatch.setattr("time.time", lambda: now)
    permit = permit_of_a_key(100)
    assert permit.reserve(80, 80) == 80
    now = 661.0
    with pytest.raises(RestError):
        permit.reserve(30, 30)
    permit.settle(80, 50)
    assert permit.headers()["x-ratelimit-remaining-tokens"] == "50"


@pytest.mark.usefixtures("noon")
def test_a_process_that_dies_leaves_no_reservation_to_the_next_at_its_place():
    keys = [ApiKey(name="other", sha256="0" * 64), ApiKey(name="a", sha256=DIGEST, tokens_per_minute=100)]
    file = os.memfd_create("limits")
    os.truncate(file, memory_bytes(len(keys), 2))

    def started(index: int) -> Permit:
        ring = KeyRing(keys)
        ring.share(file, 2, index)
        permit = ring.find(b"secret")
        assert permit is not None
        return permit

    first, second = started(0), started(1)
    first.settle(0, 10)
    first.reserve(60, 60)
    assert second.reserve(1, 100) == 30
    again = started(0)
    assert again.reserve(1, 100) == 60
    os.close(file)


def spent(permit: Permit) -> int:
    return permit.key.tokens_per_minute - int(permit.headers()["x-ratelimit-remaining-tokens"])


@pytest.mark.usefixtures("noon")
def test_many_requests_at_once_use_no_more_tokens_than_the_key_has():
    permit = permit_of_a_key(40)
    with ExitStack() as stack:
        open_ = []
        for _ in range(60):
            spending = stack.enter_context(Spending(permit))
            with suppress(RestError):
                spending.begin(Estimate(1, 1))
                open_.append(spending)
        assert len(open_) == 1
        for _ in range(39):
            open_[0].produced(1)
        with pytest.raises(RestError, match="needs 1"):
            open_[0].produced(1)
    assert spent(permit) == 40


@pytest.mark.usefixtures("noon")
def test_what_was_produced_counts_also_if_the_answer_is_cut_off():
    permit = permit_of_a_key(1000)
    for error in (ClientDisconnectedError(), RestError(500, "INTERNAL", "a"), asyncio.CancelledError()):
        before = spent(permit)
        with suppress(ClientDisconnectedError, RestError, asyncio.CancelledError), Spending(permit) as spending:
            spending.begin(Estimate(5, 1, 100))
            assert spent(permit) == before + 105
            spending.produced(7)
            raise error
        assert spent(permit) == before + 12
    before = spent(permit)
    with suppress(RestError), Spending(permit) as spending:
        spending.begin(Estimate(5, 1, 100))
        raise RestError(404, "NOT_FOUND", "a")
    assert spent(permit) == before
    with suppress(ClientDisconnectedError), Spending(permit) as spending:
        spending.begin(Estimate(5, 1, 100))
        raise ClientDisconnectedError
    assert spent(permit) == before + 5


@pytest.mark.usefixtures("noon")
def test_a_request_without_a_limit_reserves_as_its_answer_goes_on_and_what_the_model_tells_counts():
    permit = permit_of_a_key(10_000)
    with Spending(permit) as spending:
        spending.begin(Estimate(10, 2))
        assert spent(permit) == 10 + 2 * STEP
        spending.produced(2 * STEP)
        assert spent(permit) == 10 + 2 * STEP
        spending.produced(1)
        assert spent(permit) == 10 + 3 * STEP
        spending.report(17)
    assert spent(permit) == 17


def test_without_a_key_nothing_is_counted():
    with Spending(None) as spending:
        assert not spending
        spending.begin(Estimate(10, 2))
        spending.produced(5)


@pytest.mark.parametrize(
    ("request_", "estimate"),
    [
        (ChatRequest(model="m", messages=[{"role": "user", "content": "a" * 40}]), (10, 1, None)),
        (ChatRequest(model="m", messages=[{"role": "user", "content": "é" * 40}], n=3, max_tokens=7), (20, 3, 7)),
        (ChatRequest(model="m", messages=[{"role": "user", "content": ""}], max_completion_tokens=7), (1, 1, 7)),
        (CompletionRequest(model="m", prompt=["a" * 8, "b"], n=2), (3, 4, None)),
        (CompletionRequest(model="m", prompt=[1, 2, 3], max_tokens=2), (3, 1, 2)),
        (EmbeddingRequest(model="m", input=["a" * 8, "b" * 8]), (4, 0, None)),
        (EmbeddingRequest(model="m", input=[[1, 2], [3]]), (3, 0, None)),
    ],
)
def test_tokens_are_estimated(request_, estimate):
    assert of_request(request_) == estimate
