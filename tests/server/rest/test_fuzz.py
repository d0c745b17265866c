"""Any body of any type gets an answer below 500, soon."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.rest.kinds import KINDS, bind_kinds
from tests.server.rest.ways import RunningApp, app_of

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough]

SETTINGS = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TYPES = [
    "application/json",
    "multipart/form-data; boundary=b",
    "application/x-npy",
    "application/octet-stream",
    "image/png",
]
ACCEPTED = [
    "*/*",
    "application/json",
    "application/x-npy",
    "application/octet-stream",
    "text/event-stream",
    "image/png",
]
NAMES = ["text", "number", "count", "tone", "order", "others", "words", "numbers", "content", "image", "prompt", "x"]
NAMES += ["FP32", "FP16", "INT8", "UINT64", "BOOL", "BYTES", "instances", "item", "tags", "b64"]

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**66), 2**66),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["NaN", "-Infinity", "good", "AP8=", "left", "1", "[", ""]),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from(NAMES), values, max_size=7)
texts = (objects | values).map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))


@st.composite
def damaged(draw: Any) -> bytes:
    """JSON with some bytes changed, removed or added."""
    text = bytearray(draw(texts))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(text)))
        text[place : place + draw(st.integers(0, 2))] = draw(
            st.binary(max_size=2) | st.sampled_from([b"[", b"]", b'"', b"{", b",", b"1e9"])
        )
    return bytes(text)


@st.composite
def forms(draw: Any) -> bytes:
    """Forms, some of which are damaged."""
    parts = []
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=4)):
        kind = draw(st.sampled_from(["text/plain", "application/octet-stream", "image/png", "", "\xff"]))
        head = f'Content-Disposition: form-data; name="{name}"\r\nContent-Type: {kind}'.encode("latin-1")
        parts.append(b"--b\r\n" + head + b"\r\n\r\n" + draw(st.binary(max_size=20) | texts) + b"\r\n")
    body = b"".join(parts) + b"--b--\r\n"
    return body[: draw(st.integers(0, len(body)))] if draw(st.booleans()) else body


@pytest.fixture(scope="module", params=["in process", "own process"])
def app(request):
    with app_of(request.param) as app:
        bind_kinds(app.triton)
        yield app


def check(app: RunningApp, model: str, body: bytes, kind: str, accept: str, query: str = "") -> None:
    response = app.post(f"/predict/{model}{query}", content=body, headers={"content-type": kind, "accept": accept})
    assert response.status_code < 500, (body, response.text)
    if response.status_code != 200:
        assert response.json()["error"]["message"]
    response = app.post(f"/v1/models/{model}:predict", content=body, headers={"content-type": kind})
    assert response.status_code < 500, (body, response.text)


@pytest.mark.parametrize("model", KINDS)
@SETTINGS
@given(body=texts | damaged() | st.binary(max_size=60), accept=st.sampled_from(ACCEPTED))
def test_json_and_what_is_nearly_json_is_answered(app, model, body, accept):
    check(app, model, body, "application/json", accept)


@pytest.mark.parametrize("model", KINDS)
@SETTINGS
@given(
    body=st.binary(max_size=80) | forms() | st.binary(max_size=40).map(lambda data: b"\x93NUMPY\x01\x00" + data),
    kind=st.sampled_from(TYPES),
    accept=st.sampled_from(ACCEPTED),
    query=st.sampled_from(["", "?number=1", "?count=x&count=y", "?output=FP32", "?image=%ff&words=%5B", "?&&=&"]),
)
def test_bodies_of_other_types_are_answered(app, model, body, kind, accept, query):
    check(app, model, body, kind, accept, query)
