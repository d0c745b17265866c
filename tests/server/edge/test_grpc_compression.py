"""Compressed responses over gRPC: those of the edge and of Triton's own endpoint are the same."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub as Stub

from pytriton.exceptions import PyTritonValidationError
from pytriton.triton import TritonConfig
from tests.server.conftest import LOCALHOST
from tests.server.edge.http2 import DATA, HEADERS, Http2Client, call
from tests.server.edge.models import server_of_models
from tests.server.own_server import server_of
from tests.server.processes import DEADLINE_S
from tests.server.relay import relay

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough]

BOTH = "identity, deflate, gzip"
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
# What grpc-accept-encoding says, and the format of responses by the level.
ACCEPTED: dict[str | None, tuple[str, str, str, str]] = {
    BOTH: ("", "gzip", "deflate", "deflate"),
    "gzip,deflate": ("", "gzip", "deflate", "deflate"),
    "deflate ,gzip": ("", "gzip", "deflate", "deflate"),
    "gzip": ("", "gzip", "gzip", "gzip"),
    "deflate": ("", "deflate", "deflate", "deflate"),
    "identity": ("", "", "", ""),
    "GZIP": ("", "", "", ""),
    "gzip;q=1": ("", "", "", ""),
    "br": ("", "", "", ""),
    "": ("", "", "", ""),
    None: ("", "", "", ""),
}
LEVELS = ["none", "low", "medium", "high"]
WINDOW_BITS = {"gzip": 31, "deflate": 15}
STARTS = {"gzip": b"\x1f\x8b", "deflate": b"\x78"}


@pytest.fixture(scope="module", params=[(kind, level) for kind in ("edge", "triton") for level in LEVELS], ids="-".join)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The configuration of a server, and the number of its level."""
    kind, level = request.param
    options = {"grpc_frontend": kind, "grpc_infer_response_compression_level": level}
    with server_of_models(tmp_path_factory.mktemp("models"), **options) as config:
        pid = server_of(config)
        yield config, LEVELS.index(level)
        assert server_of(config) == pid


@pytest.fixture(scope="module")
def low(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonConfig]:
    options = {"grpc_frontend": "edge", "grpc_infer_response_compression_level": "low"}
    with server_of_models(tmp_path_factory.mktemp("models"), **options) as config:
        yield config


def floats(values: Any, **options: Any) -> Any:
    values = np.asarray(values, np.float32).reshape(1, -1)
    made = pb.ModelInferRequest(model_name="echo_FP32", raw_input_contents=[values.tobytes()], **options)
    made.inputs.add(name="x", datatype="FP32", shape=[*values.shape])
    return made


def answer(config: TritonConfig, method: str, sent: Any, accepted: str | None) -> tuple[bool, bytes]:
    """Whether the one message of a response is compressed, and its bytes."""
    more = [] if accepted is None else [(b"grpc-accept-encoding", accepted.encode())]
    received = b""
    with Http2Client.at(int(config.grpc_port or 0)) as client:
        client.send(call(1, sent.SerializeToString(), method, *more))
        for frame in client.frames():
            received += frame.content if frame.kind == DATA else b""
            if frame.stream == 1 and frame.kind == HEADERS and frame.flags & 1:
                break
    assert int.from_bytes(received[1:5], "big") == len(received) - 5
    return received[0] == 1, received[5:]


@pytest.mark.parametrize("accepted", ACCEPTED)
@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_responses_have_the_format_that_level_and_client_give(served, method, accepted):
    config, level = served
    form = ACCEPTED[accepted][level]
    is_compressed, content = answer(config, method, floats(np.zeros(2000)), accepted)
    assert is_compressed == bool(form)
    if form:
        assert content.startswith(STARTS[form])
        content = zlib.decompress(content, WINDOW_BITS[form])
    kind = pb.ModelInferResponse if method == "ModelInfer" else pb.ModelStreamInferResponse
    found = kind.FromString(content)
    assert getattr(found, "infer_response", found).raw_output_contents == [bytes(8000)]


def test_what_would_not_be_shorter_is_sent_as_it_is(served):
    noise = np.random.default_rng(1).bytes(4000)
    for values in ([1.0], np.frombuffer(noise, np.uint32) / 2**32):
        is_compressed, content = answer(served[0], "ModelInfer", floats(values), BOTH)
        found = pb.ModelInferResponse.FromString(zlib.decompress(content, 47) if is_compressed else content)
        assert found.raw_output_contents == floats(values).raw_input_contents
        assert len(content) <= found.ByteSize()


def test_other_methods_are_not_compressed(served):
    sent = pb.ModelConfigRequest(name="labels")
    assert not answer(served[0], "ModelConfig", sent, BOTH)[0]


@pytest.mark.parametrize("algorithm", [None, "gzip", "deflate"])
@pytest.mark.parametrize("size", [1, 10_000, 3_000_000])
def test_tritonclient_reads_compressed_responses_to_compressed_requests(low, algorithm, size):
    values = np.arange(size, dtype=np.float32).reshape(1, -1) // 100
    with (
        relay(int(low.grpc_port or 0)) as passed,
        closing(tritonclient.grpc.InferenceServerClient(f"{LOCALHOST}:{passed.port}")) as client,
    ):
        tensor = tritonclient.grpc.InferInput("x", [*values.shape], "FP32")
        tensor.set_data_from_numpy(values)
        found = client.infer("echo_FP32", [tensor], compression_algorithm=algorithm).as_numpy("x")
        assert np.array_equal(found, values)
    if size > 1:
        assert len(passed.to_client) < values.nbytes / 4
        assert (len(passed.to_server) < values.nbytes / 4) == (algorithm is not None)


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_asynchronous_calls_read_compressed_responses(low, compression):
    sizes = [1, 100, 20_000, 200_000] * 8

    async def ask() -> list[Any]:
        target = f"{LOCALHOST}:{low.grpc_port}"
        async with grpc.aio.insecure_channel(target, options=UNLIMITED, compression=compression) as channel:
            calls = (Stub(channel).ModelInfer(floats(np.full(size, size))) for size in sizes)
            return await asyncio.gather(*calls)

    for size, found in zip(sizes, asyncio.run(ask()), strict=True):
        assert found.raw_output_contents == [np.full(size, size, np.float32).tobytes()]


def test_long_and_short_responses_of_a_stream_keep_their_order(low):
    """Long ones are compressed by other threads, and short ones behind them are ready before."""
    sizes = [(300_000, 1, 50_000, 2)[number % 4] for number in range(80)]
    with grpc.insecure_channel(f"{LOCALHOST}:{low.grpc_port}", options=UNLIMITED) as channel:
        sent = (floats(np.full(size, number), id=str(number)) for number, size in enumerate(sizes))
        answers = [each.infer_response for each in Stub(channel).ModelStreamInfer(sent, timeout=DEADLINE_S)]
    assert [each.id for each in answers] == [str(number) for number in range(len(sizes))]
    for number, (size, found) in enumerate(zip(sizes, answers, strict=True)):
        assert found.raw_output_contents == [np.full(size, number, np.float32).tobytes()]


def test_responses_of_one_request_keep_their_order(low):
    made = pb.ModelInferRequest(model_name="stream")
    text = b"x" * 100_000
    for name, dtype, raw in (
        ("text", "BYTES", len(text).to_bytes(4, "little") + text),
        ("count", "INT32", (50).to_bytes(4, "little")),
    ):
        made.inputs.add(name=name, datatype=dtype, shape=[1, 1])
        made.raw_input_contents.append(raw)
    made.parameters["triton_enable_empty_final_response"].bool_param = True
    with grpc.insecure_channel(f"{LOCALHOST}:{low.grpc_port}", options=UNLIMITED) as channel:
        *answers, last = Stub(channel).ModelStreamInfer(iter([made]), timeout=DEADLINE_S)
    indices = [int.from_bytes(each.infer_response.raw_output_contents[1], "little") for each in answers]
    assert indices == [*range(50)]
    assert last.infer_response.parameters["triton_final_response"].bool_param


def test_streams_that_are_stopped_while_responses_are_compressed_leave_a_server_that_answers(low):
    pid = server_of(low)
    with grpc.insecure_channel(f"{LOCALHOST}:{low.grpc_port}", options=UNLIMITED) as channel:
        for number in range(60):
            stream = Stub(channel).ModelStreamInfer(iter([floats(np.zeros(500_000))] * 3))
            if number % 2:
                next(stream)
            stream.cancel()
        assert Stub(channel).ModelInfer(floats([1.0]), timeout=DEADLINE_S).raw_output_contents
    assert server_of(low) == pid


def test_a_level_that_does_not_exist_is_refused(free_config):
    with pytest.raises(PyTritonValidationError, match="'none', 'low', 'medium', 'high'"):
        replace(free_config, grpc_infer_response_compression_level="extreme")
