"""The first protocol's contexts beside inference: health, status, models, shared memory."""

import ctypes
from queue import Queue

import numpy as np
import pytest
import tritonclient.utils.shared_memory as shm

import pytriton.compat.tensorrtserver.shared_memory as v1_shm
from pytriton.compat.tensorrtserver.api import (
    InferenceServerException,
    ModelControlContext,
    ModelRepositoryContext,
    ProtocolType,
    ServerHealthContext,
    ServerStatusContext,
    SharedMemoryControlContext,
    model_config_pb2,
    server_status_pb2,
)
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton
from tests.server.arrays import filled
from tests.server.conftest import local_config
from tests.server.gpus import with_gpu
from tests.server.own_server import TENSORS
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.tensorrtserver_contexts import KINDS, RAW, Contexts, forgotten

pytestmark = pytest.mark.either_proxy

X = filled(2)[0]
PAGE = 4096  # the server maps regions from a multiple of it on
CONTROL = [
    (ServerHealthContext, ["is_live", "is_ready"]),
    (ServerStatusContext, ["get_server_status"]),
    (ModelRepositoryContext, ["get_model_repository_index"]),
    (SharedMemoryControlContext, ["get_shared_memory_status", "unregister_all"]),
]


@pytest.fixture(scope="module")
def model(bind):
    return bind(batch(lambda x: [x * 2]), max_batch_size=8)


@pytest.fixture(params=["http", "grpc"])
def contexts(triton_config, model, request):
    with Contexts(triton_config, request.param) as contexts:
        yield contexts


@pytest.fixture(scope="module")
def versions(triton):
    """A model with two versions."""
    for version in (1, 2):
        triton.bind("versions", batch(lambda x: [x]), *TENSORS, model_version=version)
    return "versions"


def statuses(contexts, *names):
    return contexts.make(ServerStatusContext, *names).get_server_status()


@pytest.mark.parametrize(("kind", "methods"), CONTROL)
def test_requests_are_numbered_and_a_closed_context_says_so(contexts, kind, methods):
    context = contexts.make(kind)
    assert context.get_last_request_id() is None
    numbers = []
    for method in methods:
        getattr(context, method)()
        numbers.append(context.get_last_request_id())
    assert sorted(set(numbers)) == numbers
    for _ in range(2):
        context.close()
        for method in methods:
            with pytest.raises(InferenceServerException, match=f"this {kind.__name__} is closed"):
                getattr(context, method)()
        assert context.get_last_request_id() == numbers[-1]


def test_a_dead_server_is_an_error_everywhere():
    with reserved_ports(1) as (port,):
        for protocol in ProtocolType:
            for kind, methods in CONTROL:
                with kind(f"127.0.0.1:{port}", protocol) as context:
                    for method in methods:
                        with pytest.raises(InferenceServerException, match="connection") as raised:
                            getattr(context, method)()
                        assert raised.value.request_id() > 0
                        assert context.get_last_request_id() is None


def test_a_server_that_waits_for_a_model_is_live_but_not_ready(contexts, gated):
    health, done = contexts.make(ServerHealthContext), Queue()
    assert health.is_live() is health.is_ready() is True
    contexts.infer(gated.model).async_run(lambda *ended: done.put(ended), {"x": [X]}, {"y": RAW})
    gated.wait_called()
    contexts.make(ModelControlContext).unload(gated.model)
    assert health.is_live() is True
    assert health.is_ready() is False
    status = statuses(contexts, gated.model)
    assert status.ready_state == server_status_pb2.SERVER_INITIALIZING
    assert status.model_status[gated.model].version_status[1].ready_state == server_status_pb2.MODEL_UNLOADING
    gated.gate.open()
    context, number = done.get(timeout=DEADLINE_S)
    assert context.get_async_run_results(number)["y"][0].tolist() == (X * 2).tolist()
    wait_for(health.is_ready, "the model to be unloaded")


def test_a_status_tells_of_server_and_models(contexts, model, versions):
    status = statuses(contexts)
    assert status.id == "triton"
    assert status.version.startswith("2.")
    assert status.ready_state == server_status_pb2.ServerReadyState.SERVER_READY
    assert status.uptime_ns == status.health_stats.success.count == 0
    assert status.model_status.keys() >= {model, versions}
    assert dict.fromkeys(status.model_status[versions].version_status) == {1: None, 2: None}
    config = status.model_status[model].config
    assert isinstance(config, model_config_pb2.ModelConfig)
    assert (config.name, config.max_batch_size) == (model, 8)
    assert (config.input[0].name, list(config.input[0].dims)) == ("x", [-1])
    assert config.input[0].data_type == model_config_pb2.TYPE_FP32


def test_a_status_of_one_model_leaves_the_others_out(contexts, model, versions):
    assert list(statuses(contexts, model).model_status) == [model]


def test_an_unknown_model_has_no_status_and_the_error_names_the_server(contexts, model):
    context = contexts.make(ServerStatusContext, "unknown")
    with pytest.raises(InferenceServerException, match=r"^\[triton \d+\] the server has no model 'unknown'$") as raised:
        context.get_server_status()
    assert raised.value.server_id() == "triton"
    assert raised.value.message() == "the server has no model 'unknown'"


def test_a_status_counts_requests(contexts, triton, bind):
    name = bind(batch(lambda x: [x]), max_batch_size=8)
    context = contexts.infer(name)
    for rows in (1, 3, 3):
        context.run({"x": [X] * rows}, {"y": RAW}, rows)

    def version():
        return statuses(contexts, name).model_status[name].version_status[1]

    wait_for(lambda: version().infer_stats[3].success.count == 2, "the requests to be counted")
    counted = version()
    assert counted.ready_state == server_status_pb2.MODEL_READY
    assert (counted.model_execution_count, counted.model_inference_count) == (3, 7)
    (found,) = triton.statistics(name)
    assert counted.last_inference_timestamp_milliseconds == round(found.last_inference.timestamp() * 1000) > 0
    for phase in ("success", "queue", "compute"):
        counts = {size: getattr(each, phase).count for size, each in counted.infer_stats.items()}
        assert counts == {1: 1, 3: 2}
    for size, each in triton.statistics(name)[0].batches.items():
        phases_s = each.compute_input.total_s + each.compute_infer.total_s + each.compute_output.total_s
        assert counted.infer_stats[size].compute.total_time_ns == pytest.approx(phases_s * 1e9, abs=2)
        assert counted.infer_stats[size].success.total_time_ns > counted.infer_stats[size].compute.total_time_ns > 0
        assert counted.infer_stats[size].failed.count == 0
    for phase, total in (("success", found.success), ("queue", found.queue)):
        summed = sum(getattr(each, phase).total_time_ns for each in counted.infer_stats.values())
        assert summed == pytest.approx(total.total_s * 1e9, abs=2)


def test_an_unloaded_model_has_a_state_and_no_configuration(contexts, bind):
    name = bind(batch(lambda x: [x]))
    control = contexts.make(ModelControlContext)
    control.unload(name)

    def status():
        return statuses(contexts, name).model_status[name]

    wait_for(lambda: status().version_status[1].ready_state == server_status_pb2.MODEL_UNAVAILABLE, "the unloading")
    assert not status().HasField("config")
    assert status().version_status[1].ready_state_reason.message == "unloaded"
    control.load(name)
    assert status().version_status[1].ready_state == server_status_pb2.MODEL_READY
    assert status().config.name == name
    assert control.get_last_request_id() > 0


def test_what_cannot_be_loaded_is_an_error(contexts):
    control = contexts.make(ModelControlContext)
    with pytest.raises(InferenceServerException, match="unknown"):
        control.load("unknown")
    assert control.get_last_request_id() is None
    control.close()
    for call in (control.load, control.unload):
        with pytest.raises(InferenceServerException, match="this ModelControlContext is closed"):
            call("unknown")


def test_the_index_has_each_model_once(contexts, model, versions):
    names = [entry.name for entry in contexts.make(ModelRepositoryContext).get_model_repository_index().models]
    assert {model, versions} <= set(names)
    assert len(set(names)) == len(names)


@pytest.fixture
def region():
    handle = shm.create_shared_memory_region("region", f"pytriton-v1-{id(X)}", 3 * PAGE)
    yield handle
    shm.destroy_shared_memory_region(handle)


def test_regions_are_registered_by_handle_and_by_their_fields(contexts, region):
    context = contexts.make(SharedMemoryControlContext)
    context.register(region)
    part = {"name": "part", "key": f"/{region._shm_key}", "byte_size": 64, "offset": PAGE}
    context.register(part)
    found = {each.name: each for each in context.get_shared_memory_status().shared_memory_region}
    assert found.keys() == {"region", "part"}
    assert (found["region"].byte_size, found["region"].system_shared_memory.offset) == (3 * PAGE, 0)
    assert (found["part"].byte_size, found["part"].system_shared_memory.offset) == (64, PAGE)
    assert found["part"].system_shared_memory.shared_memory_key.lstrip("/") == region._shm_key
    context.unregister(part)
    assert [each.name for each in context.get_shared_memory_status().shared_memory_region] == ["region"]
    context.unregister_all()
    assert not context.get_shared_memory_status().shared_memory_region


def test_a_region_that_a_crashed_program_left_is_registered_again(contexts, model):
    context, key = contexts.make(SharedMemoryControlContext), f"/pytriton-v1-again-{id(X)}"
    left = v1_shm.create_shared_memory_region("again", key, X.nbytes)
    context.register(left)
    v1_shm.destroy_shared_memory_region(left)
    handle = v1_shm.create_shared_memory_region("again", key, PAGE)
    try:
        v1_shm.set_shared_memory_region(handle, [X + 1])
        context.register(handle)
        (known,) = context.get_shared_memory_status().shared_memory_region
        assert (known.name, known.byte_size) == ("again", PAGE)
        results = contexts.infer(model).run({"x": (handle, [4])}, {"y": RAW})
        assert results["y"][0].tolist() == ((X + 1) * 2).tolist()
        wait_for(lambda: forgotten(context, handle), "the server to let go of the region")
    finally:
        v1_shm.destroy_shared_memory_region(handle)


def test_a_name_that_other_memory_has_is_refused_with_what_to_do(contexts, region):
    context = contexts.make(SharedMemoryControlContext)
    context.register(region)
    other = v1_shm.create_shared_memory_region("region", f"/pytriton-v1-other-{id(X)}", PAGE)
    try:
        with pytest.raises(InferenceServerException, match=f"'region' already, .*{region._shm_key}.* unregister_all"):
            context.register(other)
        with pytest.raises(InferenceServerException):
            context.register({"name": "unknown", "key": "/pytriton-no-such-memory", "byte_size": 8})
        context.unregister(other)
        context.register(other)
    finally:
        context.unregister_all()
        v1_shm.destroy_shared_memory_region(other)


def test_what_is_no_handle_of_the_kind_is_refused(contexts, region):
    context = contexts.make(SharedMemoryControlContext)
    cuda = {"name": "gpu", "raw_handle": b"", "device_id": 0, "byte_size": 64}
    for call, handle, message in (
        (context.register, ctypes.c_void_p(1), "a pointer"),
        (context.unregister, None, "handle is what"),
        (context.register, {"name": "n", "byte_size": 1}, "handle is what"),
        (context.register, cuda, "use cuda_register"),
        (context.cuda_register, region, "use register"),
        (context.cuda_register, cuda, None),  # the server's words
    ):
        with pytest.raises(InferenceServerException, match=message):
            call(handle)
        assert context.get_last_request_id() is None
    context.unregister(cuda)
    assert context.get_last_request_id() is not None


@with_gpu
def test_memory_of_a_gpu_is_registered_and_used(contexts, model):
    pytest.importorskip("cuda.bindings.runtime", reason="tritonclient needs the package cuda-python")
    cuda = pytest.importorskip("tritonclient.utils.cuda_shared_memory")
    context = contexts.make(SharedMemoryControlContext)
    handle = cuda.create_shared_memory_region("gpu", X.nbytes, 0)
    try:
        cuda.set_shared_memory_region(handle, [X])
        context.cuda_register(handle)
        (region,) = context.get_shared_memory_status().shared_memory_region
        assert (region.name, region.byte_size, region.WhichOneof("shared_memory_types")) == (
            "gpu",
            X.nbytes,
            "cuda_shared_memory",
        )
        results = contexts.infer(model).run({"x": (handle, [4])}, {"y": RAW})
        assert results["y"][0].tolist() == (X * 2).tolist()
        wait_for(lambda: forgotten(context, handle), "the server to let go of the region")
        assert not context.get_shared_memory_status().shared_memory_region
    finally:
        cuda.destroy_shared_memory_region(handle)


def named(region):
    """The same region by its fields."""
    return {"name": region._triton_shm_name, "key": region._shm_key, "byte_size": region._mpsm_handle.size}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("handle", [lambda region: region, named], ids=["handle", "fields"])
def test_inputs_and_outputs_may_be_in_shared_memory(triton_config, model, region, kind, handle):
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    handle = handle(region)
    with Contexts(triton_config, kind) as contexts:
        control, context = contexts.make(SharedMemoryControlContext), contexts.infer(model)
        control.register(handle)
        v1_shm.set_shared_memory_region(handle, [rows])
        # The server reads the inputs before it writes the outputs.
        results = context.run({"x": (handle, [4])}, {"y": (RAW, handle)}, 2)
        assert [row.tolist() for row in results["y"]] == (rows * 2).tolist()
        v1_shm.set_shared_memory_region(handle, [rows * 0])
        assert [row.tolist() for row in results["y"]] == (rows * 2).tolist()
        assert context.run({"x": [X]}, {"y": RAW})["y"][0].tolist() == (X * 2).tolist()
        wait_for(lambda: forgotten(control, handle), "the server to let go of the region")


@pytest.mark.parametrize("kind", KINDS)
def test_strings_may_be_in_shared_memory(triton_config, bind, region, kind):
    model = bind(batch(lambda x: {"y": x}), [Tensor((-1,), bytes, "x")], [Tensor((-1,), bytes, "y")])
    words = np.array([b"one", b"", "zwölf".encode()], dtype=object)
    with Contexts(triton_config, kind) as contexts:
        control, context = contexts.make(SharedMemoryControlContext), contexts.infer(model)
        control.register(region)
        results = context.run({"x": [words]}, {"y": (RAW, region)})
        assert results["y"][0].tolist() == words.tolist()
        wait_for(lambda: forgotten(control, region), "the server to let go of the region")


@pytest.fixture(scope="module")
def guarded():
    """Configuration and access token of a server with a model ``m``."""
    with local_config() as config, Triton(config=config) as triton:
        triton.bind("m", batch(lambda x: [x]), *TENSORS, config=ModelConfig(max_batch_size=4))
        yield config, triton.get_access_token()


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_restricted_endpoints_want_the_token(guarded, kind):
    config, token = guarded
    given = [
        {"http_headers": [f"triton-access-token:{token}"]},
        {"http_headers": [f"Triton-GRPC-Protocol-Triton-Access-Token: {token}", "x-other: y"]},
        {"headers": {"triton-grpc-protocol-triton-access-token": token}},
        {"headers": {"triton-access-token": token}, "http_headers": ["triton-access-token:wrong"]},
    ]
    with Contexts(config, kind) as contexts:
        assert contexts.infer("m").run({"x": [X]}, {"y": RAW})["y"][0].tolist() == X.tolist()
        for control, methods in CONTROL[1:]:
            with pytest.raises(InferenceServerException, match="restricted"):
                getattr(contexts.make(control), methods[0])()
            for options in given:
                getattr(contexts.make(control, **options), methods[0])()


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_token_in_the_environment_goes_with_every_request(guarded, kind, monkeypatch):
    config, token = guarded
    monkeypatch.setenv("PYTRITON_ACCESS_TOKEN", token)
    with Contexts(config, kind) as contexts:
        contexts.infer("m").run({"x": [X]}, {"y": RAW})
        for control, methods in CONTROL[1:]:
            getattr(contexts.make(control), methods[0])()
        with pytest.raises(InferenceServerException, match="restricted"):
            contexts.make(ModelRepositoryContext, http_headers=["triton-access-token:own"]).get_model_repository_index()
    monkeypatch.setenv("PYTRITON_ACCESS_TOKEN", "secret\n")
    with pytest.raises(InferenceServerException, match="PYTRITON_ACCESS_TOKEN is not printable") as raised:
        Contexts(config, kind).make(ServerHealthContext)
    assert "secret" not in str(raised.value)


def test_headers_of_http_other_than_the_token_do_not_go_over_grpc(guarded):
    config, _ = guarded
    with Contexts(config, "grpc") as contexts:
        assert contexts.make(ServerHealthContext, http_headers=["Content-Type: application/json"]).is_live()
