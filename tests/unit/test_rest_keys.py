"""API keys as they are written, and what they may still do."""

from __future__ import annotations

import hashlib
import json
import os

import pytest

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.rest import ApiKey, RestConfig
from pytriton.rest.errors import RestError
from pytriton.rest.keys import memory_bytes, read_keys
from pytriton.rest.permits import KeyRing, may_call

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


def test_tokens_count_after_the_request(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 600.0)
    permit = KeyRing([ApiKey(name="a", sha256=DIGEST, tokens_per_minute=5)]).find(b"secret")
    assert permit is not None
    permit.take()
    permit.use(5)
    with pytest.raises(RestError, match="its 5 tokens"):
        permit.take()
