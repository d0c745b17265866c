"""tritonclient passes tensors through system shared memory.

Nothing is inferred through a region that was registered with an offset: the server (2.51) adds it twice, and so reads
and writes memory beyond the region.
"""

import subprocess
import sys
from itertools import count

import numpy as np
import pytest
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import serialize_byte_tensor

from pytriton.model_config import Tensor
from tests.server.arrays import STRINGS, completed, filled
from tests.server.tritonclients import Answer, only

X = filled(1.5, rows=2, columns=8)
SIZE = X.nbytes
PAGE = 4096  # the server maps regions from a multiple of it on
WHOLE = 3 * PAGE
NUMBERS = count()

REGISTER = """
import sys
import tritonclient.http
import tritonclient.utils.shared_memory as shm

handle = shm.create_shared_memory_region("theirs", sys.argv[2], 64)
with tritonclient.http.InferenceServerClient(sys.argv[1]) as client:
    client.register_system_shared_memory("theirs", sys.argv[2], 64)
    assert [region["name"] for region in client.get_system_shared_memory_status()] == ["ours", "theirs"]
    client.unregister_system_shared_memory("theirs")
shm.destroy_shared_memory_region(handle)
"""


@pytest.fixture(scope="module")
def echoing(bind):
    """Returns numbers ``x`` as ``y``, and texts ``s`` as ``t``."""

    def echo(requests):
        answers = [completed(request, {"x": np.float32, "s": object}) for request in requests]
        return [{"y": answer["x"], "t": answer["s"]} for answer in answers]

    inputs = [Tensor((-1,), np.float32, "x", optional=True), Tensor((-1,), bytes, "s", optional=True)]
    return bind(echo, inputs, [Tensor((-1,), np.float32, "y"), Tensor((-1,), bytes, "t")])


@pytest.fixture
def memory():
    """A region in this process, and its key."""
    key = f"pytriton-test-{next(NUMBERS)}-{id(X)}"
    handle = shm.create_shared_memory_region("ours", key, WHOLE)
    assert key in shm.mapped_shared_memory_regions()
    yield handle, key
    shm.destroy_shared_memory_region(handle)
    assert key not in shm.mapped_shared_memory_regions()


@pytest.fixture
def region(api, memory):
    """The region, known to the server as ``ours``."""
    handle, key = memory
    api.call("register_system_shared_memory", "ours", key, WHOLE)
    yield handle
    api.unregister_regions("system")


def in_region(api, name, shape, datatype, byte_size, offset=0, region="ours"):
    return api.lib.InferInput(name, shape, datatype).set_shared_memory(region, byte_size, offset)


def to_region(api, name, byte_size, offset=0, region="ours"):
    output = api.lib.InferRequestedOutput(name)
    output.set_shared_memory(region, byte_size, offset)
    return output


def infer(api, model, inputs, outputs=None):
    return Answer(api.call("infer", model, inputs, outputs=outputs))


def test_registered_regions_are_listed_until_they_are_unregistered(api, memory):
    _, key = memory
    assert api.call("get_system_shared_memory_status") == []
    api.call("register_system_shared_memory", "whole", key, WHOLE)
    api.call("register_system_shared_memory", "part", f"/{key}", 1024, offset=PAGE)
    whole, part = sorted(api.call("get_system_shared_memory_status"), key=lambda region: -region["byte_size"])
    assert {"offset": 0, **whole} == {"name": "whole", "key": key, "offset": 0, "byte_size": WHOLE}
    assert part == {"name": "part", "key": f"/{key}", "offset": PAGE, "byte_size": 1024}
    assert api.call("get_system_shared_memory_status", "part") == [part]
    api.call("unregister_system_shared_memory", "part")
    assert api.call("get_system_shared_memory_status") == [whole]
    api.call("register_system_shared_memory", "part", f"/{key}", 1024)
    api.call("unregister_system_shared_memory")
    assert api.call("get_system_shared_memory_status") == []


def test_inputs_and_outputs_share_a_region(api, echoing, region):
    shm.set_shared_memory_region(region, [X])
    given = in_region(api, "x", X.shape, "FP32", SIZE)
    answer = infer(api, echoing, [given], [to_region(api, "y", SIZE, offset=1024)])
    assert np.array_equal(shm.get_contents_as_numpy(region, np.float32, X.shape, offset=1024), X)
    assert answer.response["outputs"][0]["shape"] == list(X.shape)
    with pytest.raises((KeyError, ValueError)):  # not None, as tritonclient documents
        answer["y"]


def test_an_input_lies_anywhere_in_a_region(api, echoing, region):
    shm.set_shared_memory_region(region, [np.zeros(3, np.uint8), X + 1])
    assert np.array_equal(infer(api, echoing, [in_region(api, "x", X.shape, "FP32", SIZE, offset=3)])["y"], X + 1)


def test_texts_travel_through_a_region_both_ways(api, echoing, region):
    texts = np.array([STRINGS], dtype=object)
    data = serialize_byte_tensor(texts)
    size = len(data.item())
    shm.set_shared_memory_region(region, [data])
    given = in_region(api, "s", texts.shape, "BYTES", size)
    assert infer(api, echoing, [given])["t"].tolist() == texts.tolist()
    infer(api, echoing, [given], [to_region(api, "t", 1024, offset=2048)])
    assert shm.get_contents_as_numpy(region, np.object_, texts.shape, offset=2048).tolist() == texts.tolist()


def test_a_tensor_changes_between_shared_memory_and_the_message(api, echoing, region):
    shm.set_shared_memory_region(region, [X])
    given = in_region(api, "x", X.shape, "FP32", SIZE)
    wanted = to_region(api, "y", SIZE)
    given.set_data_from_numpy(X + 5)
    wanted.unset_shared_memory()
    assert np.array_equal(infer(api, echoing, [given], [wanted])["y"], X + 5)
    given.set_shared_memory("ours", SIZE)
    assert np.array_equal(infer(api, echoing, [given], [wanted])["y"], X)


def test_a_region_is_reused_for_many_requests(api, echoing, region):
    for number in range(20):
        shm.set_shared_memory_region(region, [X + number])
        infer(api, echoing, [in_region(api, "x", X.shape, "FP32", SIZE)], [to_region(api, "y", SIZE, 2048)])
        assert np.array_equal(shm.get_contents_as_numpy(region, np.float32, X.shape, 2048), X + number)


@pytest.mark.parametrize("byte_size", [SIZE - 4, SIZE + 4])
def test_an_input_whose_size_is_not_that_of_its_shape_is_refused(api, echoing, region, byte_size):
    with api.refuses("INVALID_ARGUMENT", "byte size"):
        infer(api, echoing, [in_region(api, "x", X.shape, "FP32", byte_size)])


def test_an_input_beyond_its_region_is_refused(api, echoing, region):
    with api.refuses("INVALID_ARGUMENT", "Invalid offset"):
        infer(api, echoing, [in_region(api, "x", X.shape, "FP32", SIZE, offset=WHOLE - 4)])


def test_an_output_larger_than_its_place_is_refused(api, echoing, region):
    with api.refuses("INTERNAL", "shared memory"):
        infer(api, echoing, api.inputs({"x": X}), [to_region(api, "y", SIZE - 4)])
    assert np.array_equal(infer(api, echoing, api.inputs({"x": X}))["y"], X)


def test_unknown_regions_are_refused(api, echoing, region):
    with api.refuses("NOT_FOUND", "'unknown'"):
        infer(api, echoing, [in_region(api, "x", X.shape, "FP32", SIZE, region="unknown")])
    with api.refuses("NOT_FOUND", "'unknown'"):
        infer(api, echoing, api.inputs({"x": X}), [to_region(api, "y", SIZE, region="unknown")])
    with api.refuses("NOT_FOUND", "'unknown'"):
        api.call("get_system_shared_memory_status", "unknown")


def test_an_unregistered_region_is_not_used_any_more(api, echoing, memory):
    api.call("register_system_shared_memory", "gone", memory[1], WHOLE)
    api.call("unregister_system_shared_memory", "gone")
    api.call("unregister_system_shared_memory", "gone")  # again: nothing happens
    with api.refuses("NOT_FOUND", "'gone'"):
        infer(api, echoing, [in_region(api, "x", X.shape, "FP32", SIZE, region="gone")])


def test_neither_a_name_nor_a_key_can_be_registered_twice(api, memory, region):
    with api.refuses("ALREADY_EXISTS", "'ours'"):
        api.call("register_system_shared_memory", "ours", f"/{memory[1]}", 1024)
    with api.refuses("INTERNAL", "Invalid shared memory region"):
        api.call("register_system_shared_memory", "other", memory[1], 1024)


def test_memory_that_is_not_there_cannot_be_registered(api, memory):
    with api.refuses("INTERNAL", "Unable to open shared memory region"):
        api.call("register_system_shared_memory", "ours", "no-such-key", 4096)
    for byte_size, offset in ((WHOLE + PAGE, 0), (WHOLE, PAGE)):
        with api.refuses("INVALID_ARGUMENT", "failed to register"):
            api.call("register_system_shared_memory", "ours", memory[1], byte_size, offset=offset)
    assert api.call("get_system_shared_memory_status") == []


def test_classes_cannot_go_to_shared_memory(api):
    output = api.lib.InferRequestedOutput("y", class_count=2)
    with api.client_refuses("classification"):
        output.set_shared_memory("ours", SIZE)


def test_memory_of_this_library_is_not_listed(api, echoing):
    large = np.ones((1, 200_000), np.float32)
    assert np.array_equal(infer(api, echoing, api.inputs({"x": large}))["y"], large)
    assert api.call("get_system_shared_memory_status") == []


@only("http")
def test_processes_register_regions_of_their_own(api, region, memory):
    arguments = [sys.executable, "-c", REGISTER, api.address, memory[1] + "-theirs"]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [found["name"] for found in api.call("get_system_shared_memory_status")] == ["ours"]
