"""Inputs whose shape, bytes and model contradict each other, as no client library sends them."""

import asyncio
import struct

import numpy as np
import pytest
import tritonclient.http
import tritonclient.utils.shared_memory as shm

from pytriton.model_config import Tensor
from tests.server.arrays import filled
from tests.server.gated import Gated
from tests.server.proxies import HAS_EDGE, native_proxy_only
from tests.server.raw import LOCALHOST, Raw

INVALID = ("400", "INVALID_ARGUMENT")
ONE = struct.pack("<f", 1)


class Seen(list):
    """Keeps the shapes of what it was called with."""

    def __call__(self, requests):
        self.extend({name: array.shape for name, array in request.items()} for request in requests)
        return [{"y": np.zeros((1, 1), np.float32)} for _ in requests]


@pytest.fixture(scope="module")
def raw(protocol, triton_config):
    return Raw(protocol, triton_config)


@pytest.fixture(scope="module")
def seen(bind):
    seen = Seen()
    vector = Tensor(name="x", shape=(-1,), dtype=np.float32)
    seen.models = {
        "vector": bind(seen, [vector]),
        "unbatched": bind(seen, [Tensor(name="x", shape=(-1, -1), dtype=np.float32)], batching=False),
        "optional": bind(seen, [vector, Tensor(name="s", shape=(-1,), dtype=np.float32, optional=True)]),
        "scalar": bind(seen, [Tensor(name="x", shape=(), dtype=np.float32)]),
        "texts": bind(seen, [Tensor(name="x", shape=(-1,), dtype=bytes)]),
    }
    return seen


@pytest.fixture(autouse=True)
def _forgotten(seen):
    seen.clear()


@pytest.mark.parametrize(
    ("model", "shape", "size"),
    [
        ("vector", [0, 1], 4),  # the server takes the batch axis away
        ("vector", [2**62, 1], 4),  # and here, as it counts rows modulo 2**32
        ("vector", [1, 2**62], 0),  # bytes modulo 2**64
        ("vector", [1, 2**62 + 1], 4),
        ("vector", [1, 2**61], 0),
        ("vector", [2**32 + 1, 2**62], 0),
        ("unbatched", [2**32, 2**32], 0),
        ("unbatched", [2**31, 2**31], 0),
        ("unbatched", [2**33, 2**33], 0),
        ("unbatched", [0, 2**62], 0),  # of no element, and beyond what NumPy can hold
        ("scalar", [0, 1], 4),
    ],
)
def test_a_shape_that_the_servers_arithmetic_lets_through_is_refused(raw, seen, model, shape, size):
    status, text = raw.infer(seen.models[model], ("x", "FP32", shape, bytes(size)))
    assert status in INVALID, text
    assert "input 'x'" in text
    assert not seen
    good = [1, 1]
    assert raw.infer(seen.models[model], ("x", "FP32", good, ONE)) == ("200", "")
    assert seen == [{"x": (1,) if model == "scalar" else (1, 1)}]


@pytest.mark.parametrize("shape", [[1, -1], [-1, 1], [-1, -1], [1, -(2**62)]])
def test_negative_extents_do_not_reach_the_callable(raw, seen, shape):
    assert raw.infer(seen.models["vector"], ("x", "FP32", shape, ONE))[0] != "200"
    assert not seen


@pytest.mark.parametrize("size", [0, 4])
def test_an_optional_input_is_checked_like_any_other(raw, seen, size):
    bad = ("s", "FP32", [1, 2**62 + size // 4], bytes(size))
    status, text = raw.infer(seen.models["optional"], ("x", "FP32", [1, 1], ONE), bad)
    assert status in INVALID
    assert "input 's'" in text
    assert not seen


@pytest.mark.parametrize(
    ("shape", "data"),
    [
        ([1, 1], b"\xff\xff\xff\xffab"),
        ([1, 1], b"\x03\0\0\0ab"),
        ([1, 1], b"\x01\0\0\0ab"),
        ([1, 2], b"\x02\0\0\0ab"),
        ([1, 1], b"\x01\0\0\0a\x01\0\0\0b"),
        ([1, 1], b"\x01\0\0"),
        ([1, 0], b"\0\0\0\0"),
        ([0, 1], b"\x02\0\0\0ab"),
        ([1, 2**62], b"\x02\0\0\0ab"),
        ([2**32, 2**32], b""),
    ],
    ids=repr,
)
def test_texts_whose_lengths_do_not_fit_are_refused(raw, seen, shape, data):
    assert raw.infer(seen.models["texts"], ("x", "BYTES", shape, data))[0] in INVALID
    assert not seen
    assert raw.infer(seen.models["texts"], ("x", "BYTES", [1, 1], b"\x02\0\0\0ab"))[0] == "200"


def test_data_as_json_are_checked_too(triton_config, seen):
    raw = Raw("http", triton_config)
    described = {"name": "x", "datatype": "FP32", "shape": [0, 1], "data": []}
    assert raw.post(seen.models["vector"], [described])[0] != "200"
    assert not seen


def test_inputs_in_shared_memory_are_checked_too(triton_config, seen):
    raw = Raw("http", triton_config)
    region = shm.create_shared_memory_region("crafted", f"pytriton-test-crafted-{id(seen)}", 64)
    with tritonclient.http.InferenceServerClient(f"{LOCALHOST}:{triton_config.http_port}") as client:
        client.register_system_shared_memory("crafted", f"pytriton-test-crafted-{id(seen)}", 64)
        try:
            place = {"shared_memory_region": "crafted", "shared_memory_byte_size": 4}
            for shape in ([0, 1], [2**62, 1], [1, 2**62 + 1]):
                described = {"name": "x", "datatype": "FP32", "shape": shape, "parameters": place}
                assert raw.post(seen.models["vector"], [described])[0] == "400"
            assert not seen
        finally:
            client.unregister_system_shared_memory("crafted")
            shm.destroy_shared_memory_region(region)


class Counted(Gated):
    """Keeps the number of requests of each call, too."""

    def reset(self):
        super().reset()
        self.calls = []

    def __call__(self, requests):
        self.calls.append(len(requests))
        return super().__call__(requests)

    async def later(self, requests):
        return await asyncio.to_thread(self, requests)


# At its limit the Python proxy keeps a batch, which the server then cannot merge.
@pytest.fixture(params=["plain", pytest.param("coroutines", marks=native_proxy_only)])
def merging(bind, request):
    """A gated model of numbers and texts; errors of a call with several requests are not isolated."""
    gated = Counted()
    plain = request.param == "plain"
    inputs = [Tensor(name="x", shape=(-1,), dtype=np.float32), Tensor(name="s", shape=(-1,), dtype=bytes)]
    options = {} if plain else {"max_batches_in_flight": 1}
    gated.model = bind(gated if plain else gated.later, inputs, max_batch_size=16, isolate_errors=False, **options)
    yield gated
    gated.gate.open()


@pytest.mark.parametrize(
    "bad",
    [
        [("x", "FP32", [0, 4], 4 * ONE), ("s", "BYTES", [0, 1], b"\x01\0\0\0a")],
        # Triton's Python backend fails the whole batch.
        pytest.param([("x", "FP32", [1, 4], 4 * ONE), ("s", "BYTES", [1, 1], b"\2\0\0\0a")], marks=native_proxy_only),
    ],
    ids=["no rows", "texts"],
)
def test_requests_merged_with_bad_ones_are_answered_together(merging, raw, traffic, bad):
    if HAS_EDGE and bad[0][2][0] == 0:
        pytest.skip("the edge refuses a batch without rows itself, so that it is not merged")

    def good(n):
        return lambda: traffic.infer_bare(merging.model, {"x": filled(n), "s": np.array([[b"a"]], object)})

    def send_bad():
        return raw.infer(merging.model, *bad)

    calls = [good(0), good(1), send_bad, good(2), send_bad, good(3)]
    first, one, refused, two, also_refused, three = traffic.merge(merging.model, merging.gate, calls)
    for n, answer in enumerate((first, one, two, three)):
        assert answer.result()["y"][0, 0] == 2 * n
    assert {refused.result()[0], also_refused.result()[0]} <= {*INVALID}
    assert merging.calls == [1, 3]
