"""Programs in the style of the first protocol's examples run as they were written, but for their import."""

import queue
from functools import partial

import numpy as np
import pytest
import tritonclient.utils.shared_memory as shm

from pytriton.compat.tensorrtserver.api import *  # noqa: F403  (as programs do)
from pytriton.model_config import SequenceBatcher
from tests.server.processes import wait_for
from tests.server.tensorrtserver_contexts import forgotten
from tests.server.tensorrtserver_models import (
    ADD_SUB,
    SCORES,
    SEQUENCE,
    TEXT_ADD_SUB,
    Accumulator,
    add_sub,
    scores,
    text_add_sub,
)

pytestmark = pytest.mark.either_proxy

# ruff: noqa: F405

PER_REQUEST = 60.0


@pytest.fixture(scope="module")
def flags(triton_config, protocol):
    """The server's address and the protocol, as the programs get them from their command line."""
    port = triton_config.http_port if protocol == "http" else triton_config.grpc_port
    return f"127.0.0.1:{port}", ProtocolType.from_str(protocol)


@pytest.fixture(scope="module")
def grpc_flags(triton_config):
    return f"127.0.0.1:{triton_config.grpc_port}", ProtocolType.from_str("gRPC")


@pytest.fixture(scope="module")
def simple(bind):
    return bind(add_sub, *ADD_SUB, max_batch_size=8)


@pytest.fixture(scope="module")
def simple_sequence(bind):
    return bind(Accumulator(), *SEQUENCE, batcher=SequenceBatcher(), max_batch_size=4)


def test_simple(flags, simple):
    url, protocol = flags
    health_ctx = ServerHealthContext(url, protocol, verbose=False)
    assert health_ctx.is_live()
    assert health_ctx.is_ready()

    status_ctx = ServerStatusContext(url, protocol, simple, verbose=False)
    assert simple in status_ctx.get_server_status().model_status

    infer_ctx = InferContext(url, protocol, simple, 1, verbose=False)
    batch_size = 1
    input0_data = np.arange(start=0, stop=16, dtype=np.int32)
    input1_data = np.ones(shape=16, dtype=np.int32)
    result = infer_ctx.run(
        {"INPUT0": (input0_data,), "INPUT1": (input1_data,)},
        {"OUTPUT0": InferContext.ResultFormat.RAW, "OUTPUT1": InferContext.ResultFormat.RAW},
        batch_size,
    )
    output0_data = result["OUTPUT0"][0]
    output1_data = result["OUTPUT1"][0]
    for i in range(16):
        assert (input0_data[i] + input1_data[i]) == output0_data[i]
        assert (input0_data[i] - input1_data[i]) == output1_data[i]
    assert infer_ctx.get_last_request_model_name() == simple


def test_simple_string(flags, bind):
    infer_ctx = InferContext(*flags, bind(text_add_sub, *TEXT_ADD_SUB, max_batch_size=8))
    in0 = np.arange(start=0, stop=16, dtype=np.int32)
    in1 = np.ones(16, dtype=np.int32)
    input0_data = np.array([str(x) for x in in0], dtype=object)
    input1_data = np.array([str(x).encode("utf-8") for x in in1], dtype=object)
    result = infer_ctx.run(
        {"INPUT0": [input0_data], "INPUT1": [input1_data]},
        {"OUTPUT0": InferContext.ResultFormat.RAW, "OUTPUT1": InferContext.ResultFormat.RAW},
        1,
    )
    assert [int(x) for x in result["OUTPUT0"][0]] == list(in0 + in1)
    assert [int(x) for x in result["OUTPUT1"][0]] == list(in0 - in1)


def test_simple_sequence(flags, simple_sequence):
    values = [11, 7, 5, 3, 2, 0, 1]
    ctx0 = InferContext(*flags, simple_sequence, correlation_id=1000)
    ctx1 = InferContext(*flags, simple_sequence, correlation_id=1001)
    got = {ctx0: [], ctx1: []}
    for position, value in enumerate(values):
        flags = InferRequestHeader.FLAG_NONE
        if position == 0:
            flags = flags | InferRequestHeader.FLAG_SEQUENCE_START
        if position == len(values) - 1:
            flags = flags | InferRequestHeader.FLAG_SEQUENCE_END
        for ctx, sign in ((ctx0, 1), (ctx1, -1)):
            given = np.full(shape=[1], fill_value=sign * value, dtype=np.int32)
            result = ctx.run({"INPUT": (given,)}, {"OUTPUT": ctx.ResultFormat.RAW}, batch_size=1, flags=flags)
            got[ctx].append(int(result["OUTPUT"][0][0]))
    expected = np.cumsum(values).tolist()
    assert got[ctx0] == expected
    assert got[ctx1] == [-value for value in expected]


def test_simple_stream(grpc_flags, simple_sequence):
    """One stream with requests of two sequences, none of which is waited for before the next is sent."""
    values = [0, 11, 7, 5, 3, 2, 0, 1]
    done = queue.Queue()

    def completion_callback(user_data, infer_ctx, request_id):
        user_data.put((infer_ctx, request_id))

    with InferContext(*grpc_flags, simple_sequence, correlation_id=2000, streaming=True) as ctx:
        for position, value in enumerate(values):
            flags = InferRequestHeader.FLAG_SEQUENCE_START if position == 0 else 0
            if position == len(values) - 1:
                flags |= InferRequestHeader.Flag.Value("FLAG_SEQUENCE_END")
            for corr_id, sign in ((2000, 1), (2001, -1)):
                given = np.full([1], sign * value, dtype=np.int32)
                callback = partial(completion_callback, done)
                ctx.async_run(
                    callback, {"INPUT": [given]}, {"OUTPUT": InferContext.ResultFormat.RAW}, 1, flags, corr_id
                )
        got = []
        for _ in range(2 * len(values)):
            infer_ctx, request_id = done.get(timeout=PER_REQUEST)
            got.append(int(infer_ctx.get_async_run_results(request_id)["OUTPUT"][0][0]))
    expected = np.cumsum(values).tolist()
    assert got[::2] == expected
    assert got[1::2] == [-value for value in expected]


def test_image_classification(flags, bind):
    url, protocol = flags
    model_name = bind(scores, *SCORES, max_batch_size=4)

    status = ServerStatusContext(url, protocol, model_name).get_server_status()
    config = status.model_status[model_name].config
    assert (len(config.input), len(config.output), config.max_batch_size) == (1, 1, 4)
    assert config.input[0].data_type == model_config_pb2.TYPE_FP32
    c, h, w = config.input[0].dims

    images = [np.zeros((c, h, w), np.float32) for _ in range(2)]
    images[0][0, 0, 2] = 5
    images[0][0, 0, 1] = 3
    images[1][0, 0, 3] = 1
    ctx = InferContext(url, protocol, model_name)
    result = ctx.run({"image": images}, {"scores": (InferContext.ResultFormat.CLASS, 2)}, 2)
    first, second = result["scores"]
    assert [(cls[0], cls[1]) for cls in first] == [(2, 5.0), (1, 3.0)]
    assert (second[0][0], second[0][1], second[0][2]) == (3, 1.0, None)


def test_simple_async(flags, simple):
    completed = queue.Queue()
    ctx = InferContext(*flags, simple)
    ones = np.ones(16, np.int32)
    sent = {}
    for number in range(50):
        ctx.async_run(
            lambda infer_ctx, request_id: completed.put((request_id, infer_ctx.get_async_run_results(request_id))),
            {"INPUT0": [ones * number], "INPUT1": [ones]},
            {"OUTPUT0": InferContext.ResultFormat.RAW},
        )
        sent[number + 1] = number  # requests are numbered from 1
    for _ in range(50):
        request_id, results = completed.get(timeout=PER_REQUEST)
        assert results["OUTPUT0"][0].tolist() == [sent.pop(request_id) + 1] * 16
    assert ctx.get_stat()["completed_request_count"] == 50


def test_model_control(flags, bind):
    model_name = bind(add_sub, *ADD_SUB, max_batch_size=8)

    def state():
        status = ServerStatusContext(*flags, model_name).get_server_status()
        return status.model_status[model_name].version_status[1].ready_state

    control_ctx = ModelControlContext(*flags)
    assert state() == server_status_pb2.MODEL_READY
    control_ctx.unload(model_name)
    wait_for(lambda: state() == server_status_pb2.MODEL_UNAVAILABLE, "the model to be unloaded")
    with pytest.raises(InferenceServerException):
        InferContext(*flags, model_name)
    control_ctx.load(model_name)
    assert state() == server_status_pb2.MODEL_READY
    index = ModelRepositoryContext(*flags).get_model_repository_index()
    assert model_name in [model.name for model in index.models]


def test_simple_shared_memory(flags, simple):
    control_ctx = SharedMemoryControlContext(*flags)
    control_ctx.unregister_all()
    inputs = np.arange(16, dtype=np.int32), np.ones(16, np.int32)
    key = f"pytriton-v1-{id(inputs)}"
    handles = {name: shm.create_shared_memory_region(name, f"{key}-{name}", 64) for name in ("in0", "in1", "out0")}
    try:
        shm.set_shared_memory_region(handles["in0"], [inputs[0]])
        shm.set_shared_memory_region(handles["in1"], [inputs[1]])
        for handle in handles.values():
            control_ctx.register(handle)
        regions = control_ctx.get_shared_memory_status().shared_memory_region
        assert {region.name: region.byte_size for region in regions} == dict.fromkeys(handles, 64)
        assert {region.WhichOneof("shared_memory_types") for region in regions} == {"system_shared_memory"}
        infer_ctx = InferContext(*flags, simple)
        result = infer_ctx.run(
            {"INPUT0": handles["in0"], "INPUT1": (handles["in1"], [16])},
            {
                "OUTPUT0": (InferContext.ResultFormat.RAW, handles["out0"]),
                "OUTPUT1": InferContext.ResultFormat.RAW,
            },
        )
        assert shm.get_contents_as_numpy(handles["out0"], np.int32, [16]).tolist() == (inputs[0] + inputs[1]).tolist()
        assert result["OUTPUT1"][0].tolist() == (inputs[0] - inputs[1]).tolist()
        wait_for(lambda: forgotten(control_ctx, handles["in0"]), "the server to let go of the region")
        names = {region.name for region in control_ctx.get_shared_memory_status().shared_memory_region}
        assert names == {"in1", "out0"}
        control_ctx.unregister_all()
        assert not control_ctx.get_shared_memory_status().shared_memory_region
    finally:
        for handle in handles.values():
            shm.destroy_shared_memory_region(handle)
