"""tritonclient passes tensors through memory of a GPU; and what the server says where there is none."""

import base64

import numpy as np
import pytest

from tests.server.arrays import filled
from tests.server.gpus import with_gpu, without_gpu
from tests.server.tritonclients import Answer

pytestmark = pytest.mark.either_proxy

X = filled(1.5, rows=2, columns=8)
SIZE = X.nbytes
HANDLE_BYTES = 64  # of cudaIpcMemHandle_t


@pytest.fixture
def cuda():
    """tritonclient's module, which needs NVIDIA's bindings."""
    pytest.importorskip("cuda.bindings.runtime", reason="tritonclient needs the package cuda-python")
    return pytest.importorskip("tritonclient.utils.cuda_shared_memory")


@pytest.fixture
def region(api, cuda):
    """Memory of the first GPU, known to the server as ``ours``: an input's, then an output's."""
    memory = cuda.create_shared_memory_region("ours", 2 * SIZE, 0)
    api.call("register_cuda_shared_memory", "ours", cuda.get_raw_handle(memory), 0, 2 * SIZE)
    yield memory
    api.unregister_regions("cuda")
    cuda.destroy_shared_memory_region(memory)


@pytest.fixture(scope="module")
def doubling(bind):
    return bind(lambda requests: [{"y": request["x"] * 2} for request in requests])


@with_gpu
def test_regions_are_listed_until_they_are_unregistered(api, region):
    (status,) = api.call("get_cuda_shared_memory_status")
    assert {"device_id": 0, **status} == {"name": "ours", "device_id": 0, "byte_size": 2 * SIZE}
    assert api.call("get_cuda_shared_memory_status", "ours") == [status]
    api.call("unregister_cuda_shared_memory", "ours")
    assert api.call("get_cuda_shared_memory_status") == []


@with_gpu
def test_a_callable_on_the_cpu_takes_its_input_from_a_gpu_and_answers_there(api, cuda, region, doubling):
    cuda.set_shared_memory_region(region, [X])
    given = api.lib.InferInput("x", X.shape, "FP32").set_shared_memory("ours", SIZE)
    assert np.array_equal(Answer(api.call("infer", doubling, [given]))["y"], X * 2)
    wanted = api.lib.InferRequestedOutput("y")
    wanted.set_shared_memory("ours", SIZE, SIZE)
    api.call("infer", doubling, [given], outputs=[wanted])
    found = cuda.get_contents_as_numpy(region, np.float32, (4, 8))
    assert np.array_equal(found, np.concatenate([X, X * 2]))


@with_gpu
def test_names_are_shared_with_system_memory(api, cuda, region):
    with api.refuses("ALREADY_EXISTS", "'ours'"):
        api.call("register_cuda_shared_memory", "ours", cuda.get_raw_handle(region), 0, SIZE)


@without_gpu
@pytest.mark.parametrize("handle", [b"too short", bytes(HANDLE_BYTES)])
def test_without_a_gpu_nothing_can_be_registered(api, handle):
    with api.refuses("INVALID_ARGUMENT"):
        api.call("register_cuda_shared_memory", "ours", base64.b64encode(handle), 0, SIZE)
    assert api.call("get_cuda_shared_memory_status") == []


@without_gpu
def test_without_a_gpu_the_list_is_empty_and_unregistering_does_nothing(api):
    assert api.call("get_cuda_shared_memory_status") == []
    with api.refuses("NOT_FOUND", "'unknown'"):
        api.call("get_cuda_shared_memory_status", "unknown")
    api.call("unregister_cuda_shared_memory")
    api.call("unregister_cuda_shared_memory", "unknown")


@without_gpu
def test_a_region_of_a_gpu_that_is_not_there_is_refused(api, doubling):
    given = api.lib.InferInput("x", X.shape, "FP32").set_shared_memory("ours", SIZE)
    with api.refuses("NOT_FOUND", "'ours'"):
        api.call("infer", doubling, [given])
