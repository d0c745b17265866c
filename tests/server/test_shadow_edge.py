"""The edge sends copies of the requests of shadows, and compares their answers."""

from __future__ import annotations

import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from pytriton import Shadow, Tensor
from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig
from pytriton.traffic import _are_close
from pytriton.triton import Triton
from pytriton.worker.origin import current_origin
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.proxies import HAS_EDGE
from tests.server.traffic import Gate
from tests.server.words import one, post, three, two

pytestmark = pytest.mark.either_proxy


@pytest.fixture(scope="module")
def protocol():
    return "http"


@pytest.fixture(scope="module", autouse=True)
def versions(triton):
    for function in (one, two, three):
        triton.bind(function)


def test_a_share_may_change(composed):
    shadow = Shadow("one", to="two", share=0)
    client = composed(shadow)
    for _ in range(20):
        client.call("a")
    shadow.share = 1
    client.call("b")
    wait_for(lambda: shadow.counts["different"], "the copy")
    assert shadow.counts == {"different": 1}


PAIRS = {
    "FP16": (
        np.float16,
        [(1, 1), (1, 1.001), (1000, 1001), (np.nan, np.nan), (np.inf, np.inf), (np.inf, -np.inf), (0, 6e-8)],
    ),
    "FP32": (np.float32, [(1, 1 + 1e-6), (1, 1.001), (np.nan, 1), (np.inf, 1e38), (0.0, -0.0), (1e-9, 0)]),
    "FP64": (np.float64, [(1, 1 + 1e-6), (1, 1.001), (np.nan, np.nan), (1e300, -1e300)]),
    "INT32": (np.int32, [(1, 1), (10**9, 10**9 + 1)]),
    "BOOL": (np.bool_, [(True, True), (True, False)]),
    "BYTES": (np.bytes_, [(b"same", b"same"), (b"same", b"sane"), (b"a", b"ab")]),
}


@pytest.mark.parametrize("dtype", PAIRS)
def test_answers_are_compared_as_numpy_compares_them(triton, url, dtype):
    @batch
    def left(a: Any, b: Any) -> dict[str, Any]:
        return {"y": a}

    @batch
    def right(a: Any, b: Any) -> dict[str, Any]:
        return {"y": b}

    kind, pairs = PAIRS[dtype]
    tensors = [Tensor(name="a", shape=(1,), dtype=kind), Tensor(name="b", shape=(1,), dtype=kind)]
    for function in (left, right):
        triton.bind(function.__name__, function, tensors, [Tensor(name="y", shape=(1,), dtype=kind)])
    shadow = Shadow("left", to="right")
    triton.bind("pair", shadow)
    expected: Counter[str] = Counter()
    try:
        with ModelClient(url, "pair") as client:
            for one, other in pairs:
                arrays = [np.array([[each]], kind) for each in (one, other)]
                client.infer_batch(*arrays)
                is_same = _are_close({"y": arrays[0]}, {"y": arrays[1]}, 1e-5, 1e-8)
                expected["same" if is_same else "different"] += 1
                wait_for(lambda: shadow.counts == expected, f"the comparison of {one} and {other}")
    finally:
        for name in ("pair", "left", "right"):
            triton.unbind(name)


def test_a_copy_that_fails_is_counted_and_its_client_has_the_answer(triton, url, composed):
    def wrong(word: str) -> str:
        raise ValueError(word)

    triton.bind(wrong)
    try:
        shadow = Shadow("one", to="wrong")
        client = composed(shadow)
        assert client.call("a") == "a 1"
        wait_for(lambda: shadow.counts == {"failed": 1}, "the copy")
    finally:
        triton.unbind("wrong")


def test_an_error_is_compared_with_nothing(triton, composed):
    def picky(word: str) -> str:
        if word == "wrong":
            raise ValueError(word)
        return word

    triton.bind(picky)
    try:
        shadow = Shadow("picky", to="one")
        client = composed(shadow)
        with pytest.raises(PyTritonClientInferenceServerError):
            client.call("wrong")
        client.call("right")
        wait_for(lambda: shadow.counts.total(), "a copy")
        assert shadow.counts == {"different": 1}
    finally:
        triton.unbind("picky")


@pytest.mark.skipif(not HAS_EDGE, reason="about the edge")
def test_copies_beyond_a_rate_are_dropped(composed):
    shadow = Shadow("one", to="two")
    client = composed(shadow)
    began = time.monotonic()
    for _ in range(300):
        client.call("a")
    wait_for(lambda: shadow.counts.total() == 300, "the copies")
    assert shadow.counts["different"] <= 17 + 100 * (time.monotonic() - began)


@pytest.mark.skipif(not HAS_EDGE, reason="a coroutine of this process ends with it")
def test_a_stop_waits_for_no_copy_but_the_one_that_runs(free_config):
    gate, copies = Gate(), []

    @batch
    def fast(x: Any) -> dict[str, Any]:
        return {"y": x}

    @batch
    def slow(x: Any) -> dict[str, Any]:
        copies.append(x)
        gate.wait()
        return {"y": x}

    column = [Tensor(name="x", shape=(1,), dtype=np.float32)], [Tensor(name="y", shape=(1,), dtype=np.float32)]
    with Triton(config=free_config) as triton:
        for function in (fast, slow):
            triton.bind(function.__name__, function, *column, config=ModelConfig(max_batch_size=1))
        triton.bind("watched", Shadow("fast", to="slow"))
        triton.run()
        with ModelClient(f"http://{free_config.http_address}:{free_config.http_port}", "watched") as client:
            for _ in range(12):
                client.infer_batch(np.ones((1, 1), np.float32))
        wait_for(gate.entered.is_set, "the first copy")
        with ThreadPoolExecutor(1) as pool:
            stopping = pool.submit(triton.stop)
            wait_for(lambda: not is_listening(free_config.http_port), "the stop to begin")
            gate.open()
            stopping.result(DEADLINE_S)
    assert len(copies) <= 2


def test_shadows_that_copy_to_each_other_copy_each_request_once(triton, composed):
    client = composed(Shadow("one", to="two"))
    other = Shadow("one", to="composed")
    triton.bind("other", other)
    copying = Shadow("one", to="other")
    triton.bind("composed", copying, replace=True)
    try:
        for _ in range(3):
            assert client.call("a") == "a 1"
        wait_for(lambda: copying.counts.total() == 3, "the copies")
        assert other.counts.total() <= 3
    finally:
        triton.unbind("other")


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), DEADLINE_S).close()
    except OSError:
        return False
    return True


def test_large_requests_are_compared_too(triton, url):
    @batch
    def first(x: Any) -> dict[str, Any]:
        return {"y": x}

    column = [Tensor(name="x", shape=(-1,), dtype=np.float32)], [Tensor(name="y", shape=(-1,), dtype=np.float32)]
    for name in ("large", "larger"):
        triton.bind(name, first, *column)
    shadow = Shadow("large", to="larger")
    triton.bind("shadowed", shadow)
    try:
        with ModelClient(url, "shadowed") as client:
            for count, floats in enumerate((1 << 17, 1 << 19), 1):  # half a MiB, and two
                assert client.infer_batch(np.ones((1, floats), np.float32))["y"].shape == (1, floats)
                wait_for(lambda: shadow.counts == {"same": count}, "the copy")  # noqa: B023
    finally:
        for name in ("shadowed", "large", "larger"):
            triton.unbind(name)


@pytest.mark.skipif(not HAS_EDGE, reason="the edge tells callables the priority of a request")
def test_copies_have_the_lowest_priority_of_their_model_and_the_parameters_and_id_of_the_request(triton, url):
    seen = []

    def main(requests: list[Any]) -> list[Any]:
        return [{"y": request["x"]} for request in requests]

    def other(requests: list[Any]) -> list[Any]:
        origin = current_origin.get()
        seen.extend((origin.priority, request.parameters["of"], request.request_id) for request in requests)
        return [{"y": request["x"]} for request in requests]

    column = [Tensor(name="x", shape=(1,), dtype=np.float32)], [Tensor(name="y", shape=(1,), dtype=np.float32)]
    levels = DynamicBatcher(priority_levels=3, default_priority_level=2)
    triton.bind("main", main, *column)
    triton.bind("other", other, *column, config=ModelConfig(batcher=levels))
    shadow = Shadow("main", to="other")
    triton.bind("watched", shadow)
    inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}]
    try:
        post(
            f"{url}/v2/models/watched/infer",
            {"inputs": inputs, "id": "7", "parameters": {"of": "all", "timeout": 10**7}},
        )
        wait_for(lambda: shadow.counts == {"same": 1}, "the copy")
        assert seen == [(3, "all", "7")]
    finally:
        for name in ("watched", "main", "other"):
            triton.unbind(name)
