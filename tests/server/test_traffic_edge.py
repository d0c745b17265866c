"""The edge passes the requests of splits on itself: by every door, and as the callable would."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient

from pytriton import ModelHandle, Pipeline, Shadow, Split
from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.composition import traffic_file
from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config import Recording
from pytriton.recording import read
from pytriton.triton import Triton
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.proxies import HAS_EDGE
from tests.server.words import WORD, calls, one, post, three, two

pytestmark = pytest.mark.either_proxy


@pytest.fixture(scope="module")
def protocol():
    return "http"


@pytest.fixture(scope="module", autouse=True)
def versions(triton):
    for function in (one, two, three):
        triton.bind(function)


KEYS = ("ada", "grace", "Ünïcödé", "", "a" * 3000, 7, -1, 2**40, True, False, 0.75, 1e22, None)


def batches(triton: Triton, model: str) -> int:
    """How many batches the callable of a model has, and has not answered."""
    return sum(status.batches or 0 for status in triton.worker_status() if status.name.startswith(f"{model}-"))


def given(key: Any) -> dict[str, Any]:
    return {} if key is None else {"user": key}


def by_json(model: str) -> Callable[[str, str, Any], str]:
    def send(url: str, grpc_url: str, key: Any) -> str:
        answer = post(f"{url}/v2/models/{model}/infer", {"inputs": WORD, "parameters": given(key)})
        assert answer["model_name"] == model
        return answer["outputs"][0]["data"][0]

    return send


def by_client(module: Any) -> Callable[[str, str, Any], str]:
    def send(url: str, grpc_url: str, key: Any) -> str:
        word = module.InferInput("word", [1, 1], "BYTES")
        word.set_data_from_numpy(np.array([["a"]], np.object_))
        address = url if module is httpclient else grpc_url
        with module.InferenceServerClient(address.partition("://")[2]) as client:
            return client.infer("chosen", [word], parameters=given(key)).as_numpy("result").item().decode()

    return send


def by_stream(url: str, grpc_url: str, key: Any) -> str:
    word = grpcclient.InferInput("word", [1, 1], "BYTES")
    word.set_data_from_numpy(np.array([["a"]], np.object_))
    answers: list[Any] = []
    came = threading.Event()
    with grpcclient.InferenceServerClient(grpc_url.partition("://")[2]) as client:
        client.start_stream(lambda result, error: (answers.append(error or result), came.set()))
        client.async_stream_infer("chosen", [word], parameters=given(key))
        assert came.wait(DEADLINE_S)
    return answers[0].as_numpy("result").item().decode()


def by_generate(url: str, grpc_url: str, key: Any) -> str:
    return post(f"{url}/v2/models/chosen/generate", {"word": "a", **given(key)})["result"]


def by_handle(url: str, grpc_url: str, key: Any) -> str:
    with ModelClient(url, "calling") as client:
        return client.call("a", json.dumps(key))


DOORS = {
    "JSON": by_json("chosen"),
    "binary data": by_client(httpclient),
    "gRPC": by_client(grpcclient),
    "a stream of gRPC": by_stream,
    "generate": by_generate,
    "a handle": by_handle,
    "a step": by_json("stepping"),
}


@pytest.fixture(scope="module")
def chosen(triton) -> Iterator[Split]:
    """A split by the parameter ``user``, and models that call it."""

    def calling(word: str, user: str, chosen: ModelHandle) -> str:
        return chosen(word, parameters=given(json.loads(user)))

    split = Split({"one": 3, "two": 2}, by="user")
    triton.bind("chosen", split)
    triton.bind(calling)
    triton.bind("stepping", Pipeline("chosen"))
    yield split
    for name in ("stepping", "calling", "chosen"):
        triton.unbind(name)


@pytest.mark.parametrize("door", DOORS)
def test_a_key_gets_to_the_same_model_by_every_door(door, chosen, url, grpc_url):
    before, called = chosen.counts.total(), calls(url, "chosen")
    sent = 0
    for key in KEYS:
        if isinstance(key, float) and door in ("binary data", "gRPC", "a stream of gRPC"):
            continue  # tritonclient sends none
        expected = Split({"one": 3, "two": 2}, by="user").target_of(SimpleNamespace(parameters=given(key)))
        answer = DOORS[door](url, grpc_url, key)
        assert answer in ("a 1", "a 2") if key is None else answer == f"a {1 + (expected == 'two')}"
        sent += 1
    assert chosen.counts.total() == before + sent
    floats = sum(isinstance(key, float) for key in KEYS)
    if HAS_EDGE and door != "a step":
        assert calls(url, "chosen") - called <= floats  # only those passed the callable


def test_keys_are_spread_by_weight(chosen, url, grpc_url):
    found = Counter(by_json("chosen")(url, grpc_url, f"user {number}") for number in range(500))
    assert 230 < found["a 1"] < 370  # 6 standard deviations around 300


def test_a_request_always_has_a_model_while_weights_change(triton, composed):
    split = Split({"one": 1, "two": 0, "three": 0})
    client, done = composed(split), threading.Event()

    def change() -> None:
        while not done.is_set():
            split.weights = {"one": 0, "two": 1, "three": 0}
            split.weights = {"one": 1, "two": 0, "three": 0}

    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(change)
        try:
            found = {client.call("a") for _ in range(150)}
        finally:
            done.set()
        changing.result()
    assert found <= {"a 1", "a 2"}


def test_a_split_of_splits_and_shadows_passes_on_in_one_step(triton, composed, url):
    triton.bind("inner", Split({"one": 1}))
    shadow = Shadow("inner", to="two")
    triton.bind("outer", shadow)
    split = Split({"outer": 1})
    client = composed(split)
    try:
        assert client.call("a") == "a 1"
        wait_for(lambda: shadow.counts["different"] == 1, "the copy")
        assert split.counts == {"outer": 1}
        if HAS_EDGE:
            assert [calls(url, name) for name in ("composed", "outer", "inner")] == [0, 0, 0]
    finally:
        triton.unbind("outer")
        triton.unbind("inner")


def test_a_model_that_is_not_there_at_the_moment_is_waited_for(triton, composed):
    def gone(word: str) -> str:
        return word

    triton.bind(gone)
    client = composed(Split({"gone": 1}))
    assert client.call("a") == "a"
    triton.unbind("gone")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.call, "b")
        if HAS_EDGE:
            wait_for(lambda: batches(triton, "composed"), "the request to come to the callable")
        triton.bind(gone)
        assert answer.result(DEADLINE_S) == "b"
    triton.unbind("gone")


def test_requests_are_recorded_though_the_edge_would_pass_them_on(triton, composed, tmp_path):
    split = Split({"one": 1})
    client = composed(split)
    client.call("before")
    triton.start_recording("composed", Recording(tmp_path / "day.ptr"))
    for word in "abc":
        client.call(word)
    triton.stop_recording("composed")
    client.call("after")
    recorded = [record.inputs["word"].item() for record in read(tmp_path / "day.ptr")]
    assert [each.decode() if isinstance(each, bytes) else each for each in recorded] == ["a", "b", "c"]
    assert split.counts == {"one": 5}


def test_each_version_of_a_model_passes_its_requests_on(triton, url):
    first, second = Split({"one": 1, "two": 0}), Split({"one": 0, "two": 1})

    def answer(path: str) -> str:
        return post(f"{url}/v2/models/versioned{path}/infer", {"inputs": WORD})["outputs"][0]["data"][0]

    for version, split in ((1, first), (2, second)):
        triton.bind("versioned", split, model_version=version)
    try:
        for version in (1, 2, 1):
            assert answer(f"/versions/{version}") == f"a {version}"
        assert (first.counts, second.counts) == ({"one": 2}, {"two": 1})
        for version in (1, 2):
            triton.serve_versions("versioned", [version])
            assert answer("") == f"a {version}"
    finally:
        triton.unbind("versioned")


def test_a_file_of_another_version_of_pytriton_leaves_requests_to_the_callable(composed, url, monkeypatch):
    monkeypatch.setattr(traffic_file, "FORMAT", traffic_file.FORMAT + 1)
    split = Split({"one": 1})
    assert composed(split).call("a") == "a 1"
    assert split.counts == {"one": 1}
    assert calls(url, "composed") == 1


def test_counts_stay_when_a_split_is_bound_again(triton, url):
    split = Split({"one": 1})
    for bound in (1, 2):
        triton.bind("again", split)
        with ModelClient(url, "again") as client:
            client.call("a")
        triton.unbind("again")
        assert split.counts == {"one": bound}


@pytest.mark.parametrize("targets", range(1, 7))
def test_a_split_of_any_number_of_models_is_passed_on(triton, composed, url, targets):
    names = [f"copy-{number}" for number in range(targets)]

    def echo(word: str) -> str:
        return word

    for name in names:
        triton.bind(name, echo)
    split = Split(dict.fromkeys(names, 1), by="user")
    client = composed(split)
    try:
        for user in range(60):
            assert client.call("a", parameters={"user": user}) == "a"
        assert {*split.counts} == {*names}
        assert calls(url, "composed") == (0 if HAS_EDGE else 60)
    finally:
        for name in names:
            triton.unbind(name)


@pytest.mark.parametrize(
    ("parameters", "key"),
    [
        ({"USER": "ada", "user": "grace"}, "grace"),
        ({"USER": "ada", "User": "grace"}, "ada"),
        ({"uSER": "linus", "other": "x"}, "linus"),
    ],
)
def test_of_names_that_differ_in_letter_case_alone_the_same_one_counts(chosen, url, parameters, key):
    expected = Split({"one": 3, "two": 2}, by="user").target_of(SimpleNamespace(parameters={"user": key}))
    answer = post(f"{url}/v2/models/chosen/infer", {"inputs": WORD, "parameters": parameters})
    assert answer["outputs"][0]["data"][0] == f"a {1 + (expected == 'two')}"


def test_a_model_that_would_pass_requests_on_to_itself_is_refused(triton):
    triton.bind("own", Split({"one": 1}))
    try:
        with pytest.raises(PyTritonValidationError, match="to itself"):
            triton.bind("own", Split({"own": 1}), replace=True)
    finally:
        triton.unbind("own")


def test_a_cycle_of_splits_is_an_error_of_the_request(triton, url):
    for name, target in (("tail", "one"), ("head", "tail")):
        triton.bind(name, Split({target: 1}))
    triton.bind("tail", Split({"head": 1}), replace=True)
    try:
        with ModelClient(url, "head") as client, pytest.raises(PyTritonClientInferenceServerError, match=r"tail|head"):
            client.call("a")
    finally:
        triton.unbind("head")
        triton.unbind("tail")


def test_a_callable_that_calls_itself_through_a_split_is_told_so(triton, url):
    def looking(word: str, mirror: ModelHandle) -> str:
        return mirror(word)

    def looked(word: str) -> str:
        return word

    triton.bind("looking", looked)
    triton.bind("mirror", Split({"looking": 1}))
    triton.rebind("looking", looking)
    try:
        with ModelClient(url, "looking") as client, pytest.raises(PyTritonClientInferenceServerError, match="itself"):
            client.call("a")
    finally:
        triton.unbind("mirror")
        triton.unbind("looking")


def test_a_split_that_is_bound_anew_to_a_callable_is_that_callable(triton, composed):
    async def instead(word: str) -> str:
        return "instead"

    client = composed(Split({"one": 1}))
    assert client.call("a") == "a 1"
    triton.rebind("composed", instead)
    assert client.call("a") == "instead"


@pytest.mark.parametrize("body", [{"inputs": []}, {"inputs": [{**WORD[0], "datatype": "FP32", "data": [1]}]}])
def test_requests_that_the_server_refuses_are_not_counted(composed, url, body):
    split = Split({"one": 1})
    composed(split)
    with pytest.raises(HTTPError):
        post(f"{url}/v2/models/composed/infer", body)
    assert not split.counts


def test_a_split_that_is_bound_again_and_again_keeps_no_files_open(triton):
    split = Split({"one": 1})
    before = open_traffic_files()
    for _ in range(6):
        triton.bind("again", split)
        triton.unbind("again")
    assert len(open_traffic_files() - before) <= 2


def open_traffic_files() -> set[str]:
    found = set()
    for each in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing
            found.add(os.readlink(f"/proc/self/fd/{each}"))
    return {path for path in found if ".traffic" in path}
