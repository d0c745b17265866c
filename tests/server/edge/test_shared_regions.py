"""Regions of system shared memory, which the edge reads and writes itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc

from pytriton.config import TritonConfig
from tests.server.edge.cases import get, infer, numbers, post
from tests.server.edge.models import server_of_models
from tests.server.edge.wire import Answer, Client
from tests.server.processes import wait_for

pytestmark = pytest.mark.either_proxy

MIB = 2**20
PAGE = 4096
X = np.array([[1.5, -2.0, 0.25]], np.float32)
NUMBERS = count()
MEMORY = "/v2/systemsharedmemory"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonConfig]:
    options = {"http_frontend": "native", "http_max_body_bytes": 8 * MIB}
    with server_of_models(tmp_path_factory.mktemp("models"), **options) as config:
        yield config


@pytest.fixture(autouse=True)
def no_regions(client: Client) -> Iterator[None]:
    """There are none after each test."""
    yield
    client.ask(post(f"{MEMORY}/unregister", b""))


@pytest.fixture
def grpc(config: TritonConfig) -> Iterator[Any]:
    with tritonclient.grpc.InferenceServerClient(f"{config.grpc_address}:{config.grpc_port}") as client:
        yield client


@pytest.fixture
def memory() -> Iterator[Path]:
    """A file of shared memory, which begins with X."""
    path = Path(f"/dev/shm/pytriton-test-{os.getpid()}-{next(NUMBERS)}")
    path.write_bytes(X.tobytes().ljust(4 * PAGE, b"\0"))
    yield path
    path.unlink(missing_ok=True)


def register(client: Client, memory: Path | str, byte_size: int = 4 * PAGE, offset: int = 0, name: str = "r") -> Answer:
    key = memory if isinstance(memory, str) else f"/{memory.name}"
    body = {"key": key, "offset": offset, "byte_size": byte_size}
    return client.ask(post(f"{MEMORY}/region/{name}/register", body))


def part(offset: int = 0, byte_size: int = X.nbytes, region: str = "r") -> dict[str, Any]:
    return {"shared_memory_region": region, "shared_memory_offset": offset, "shared_memory_byte_size": byte_size}


def from_region(client: Client, array: np.ndarray = X, **options: Any) -> Answer:
    """The answer to an inference whose input has the shape of an array."""
    options = {"byte_size": array.nbytes, **options}
    return client.ask(infer("echo_FP32", numbers(array, more={"data": None, "parameters": part(**options)})))


def to_region(client: Client, array: np.ndarray = X, **options: Any) -> Answer:
    options = {"byte_size": array.nbytes, **options}
    outputs = [{"name": "x", "parameters": part(**options)}]
    return client.ask(infer("echo_FP32", numbers(array, binary=True), outputs=outputs))


def values(answer: Answer) -> list[float]:
    assert answer.status == 200, answer.error
    return list(answer.json["outputs"][0]["data"])


def test_inputs_and_outputs_are_read_and_written_where_the_request_says(client, memory):
    assert register(client, memory).status == 200
    assert values(from_region(client)) == X[0].tolist()
    answer = to_region(client, X + 1, offset=PAGE + 3)
    assert answer.json["outputs"] == [{"name": "x", "datatype": "FP32", "shape": [1, 3]}]
    assert np.frombuffer(memory.read_bytes(), np.float32, 3, PAGE + 3).tolist() == (X + 1)[0].tolist()
    assert values(from_region(client, offset=PAGE + 3)) == (X + 1)[0].tolist()


def test_a_region_with_an_offset_begins_there(client, memory):
    memory.write_bytes(bytes(PAGE) + X.tobytes().ljust(3 * PAGE, b"\0"))
    assert register(client, memory, 2 * PAGE, PAGE).status == 200
    assert values(from_region(client)) == X[0].tolist()
    assert from_region(client, offset=2 * PAGE - 12).status == 200
    assert from_region(client, offset=2 * PAGE - 8).status == 400


def test_large_tensors_travel_through_a_region(client, memory):
    array = np.arange(MIB, dtype=np.float32).reshape(1, -1)
    memory.write_bytes(array.tobytes() + bytes(array.nbytes))
    assert register(client, memory, 2 * array.nbytes).status == 200
    given = numbers(array, more={"data": None, "parameters": part(0, array.nbytes)})
    wanted = [{"name": "x", "parameters": part(array.nbytes, array.nbytes)}]
    assert client.ask(infer("echo_FP32", given, outputs=wanted)).status == 200
    assert memory.read_bytes()[array.nbytes :] == array.tobytes()


def test_a_region_that_became_shorter_is_an_error_and_does_not_grow_again(client, memory):
    assert register(client, memory).status == 200
    os.truncate(memory, 8)
    for answer in (from_region(client), to_region(client), from_region(client, offset=PAGE)):
        assert answer.status == 400
        assert "shorter" in answer.error
    assert memory.stat().st_size == 8
    os.truncate(memory, 4 * PAGE)
    assert from_region(client).status == 200


WRONG = {
    "an offset at the end": ({"offset": 4 * PAGE}, "Invalid offset for shared memory region: 'r'"),
    "the largest offset": ({"offset": 2**64 - 1}, "Invalid offset for shared memory region: 'r'"),
    "a size beyond the end": ({"offset": 4 * PAGE - 4}, "Invalid offset + byte size for shared memory region: 'r'"),
    "a sum that overflows": ({"offset": 8, "byte_size": 2**64 - 8}, "Invalid offset + byte size for shared memory"),
    "no bytes": ({"byte_size": 0}, "Invalid offset + byte size for shared memory region: 'r'"),
    "a negative offset": ({"offset": -1}, "Unable to parse 'shared_memory_offset'"),
    "a size that is text": ({"byte_size": "12"}, "Unable to parse 'shared_memory_byte_size'"),
    "a region that is a number": ({"region": 1}, "Unable to parse 'shared_memory_region'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_parts_are_refused(client, memory, name):
    options, message = WRONG[name]
    assert register(client, memory).status == 200
    for call in (from_region, to_region):
        answer = call(client, **options)
        assert answer.status == 400
        assert message in answer.error


def test_a_size_that_is_not_that_of_the_tensor_is_refused(client, memory):
    assert register(client, memory).status == 200
    small = from_region(client, byte_size=8)
    assert (small.status, "Expected 12, got 8" in small.error) == (400, True)
    little = to_region(client, byte_size=8)
    assert (little.status, "should be at least 12 bytes" in little.error) == (500, True)
    for more in ({"binary_data": True}, {"classification": 1}):
        outputs = [{"name": "x", "parameters": {**part(), **more}}]
        answer = client.ask(infer("echo_FP32", numbers(), outputs=outputs))
        assert (answer.status, "can't set both" in answer.error) == (400, True)


def test_inputs_in_regions_are_bounded_together(client, memory):
    os.truncate(memory, 16 * MIB)
    assert register(client, memory, 16 * MIB).status == 200
    half = np.zeros((1, 5 * MIB // 4), np.float32)
    inputs = [
        numbers(half, more={"data": None, "name": name, "parameters": part(0, half.nbytes)}) for name in ("a", "b")
    ]
    answer = client.ask(infer("pair", *inputs))
    assert answer.status == 400
    assert f"more than {8 * MIB} bytes" in answer.error


@pytest.mark.parametrize("key", ["", "/", ".", "..", "../shm/x", "a/b", "/etc/passwd", "x" * 300, "no-such-file"])
def test_a_key_is_the_name_of_a_file_in_shared_memory(client, key):
    answer = register(client, key)
    assert answer.status in (400, 500)
    assert answer.error
    assert client.ask(get(f"{MEMORY}/status")).json == []


def test_what_is_beyond_a_file_or_known_already_cannot_be_registered(client, memory):
    assert register(client, memory, 4 * PAGE + 1).status == 400
    assert register(client, memory, 2**63, 2**63).status == 400
    assert register(client, memory, 2**64 - 1, 2**64 - 1).status == 400
    assert register(client, memory, name="a%20b").status == 400
    assert register(client, memory).status == 200
    assert "already in manager" in register(client, memory).error
    assert "Invalid shared memory region" in register(client, memory, name="other").error
    assert [region["name"] for region in client.ask(get(f"{MEMORY}/status")).json] == ["r"]


def test_a_region_of_the_same_name_is_another_one(client, memory):
    assert register(client, memory).status == 200
    assert values(from_region(client)) == X[0].tolist()
    assert client.ask(post(f"{MEMORY}/region/r/unregister", b"")).status == 200
    assert from_region(client).status == 404
    memory.unlink()
    memory.write_bytes((X * 2).tobytes().ljust(4 * PAGE, b"\0"))
    assert register(client, memory).status == 200
    assert values(from_region(client)) == (X * 2)[0].tolist()


def test_regions_of_grpc_are_those_of_http(client, grpc, memory):
    grpc.register_system_shared_memory("r", f"/{memory.name}", 4 * PAGE)
    assert values(from_region(client)) == X[0].tolist()
    assert to_region(client, X + 1, offset=PAGE).status == 200
    grpc.unregister_system_shared_memory("r")
    wait_for(lambda: from_region(client).status == 404, "the end of the region")
    assert register(client, memory).status == 200
    given = tritonclient.grpc.InferInput("x", X.shape, "FP32").set_shared_memory("r", X.nbytes, PAGE)
    assert np.array_equal(grpc.infer("echo_FP32", [given]).as_numpy("x"), X + 1)
    assert client.ask(post(f"{MEMORY}/unregister", b"")).status == 200
    assert grpc.get_system_shared_memory_status(as_json=True) == {}
