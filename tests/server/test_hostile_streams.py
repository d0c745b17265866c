"""Requests on a gRPC stream beside those of a decoupled model: the server wrote two messages at once, and ended."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.server.conftest import LOCALHOST, local_config
from tests.server.own_server import double, server_of
from tests.server.processes import DEADLINE_S
from tests.server.proxies import native_part_only

pytestmark = [pytest.mark.either_proxy, native_part_only]

STREAMS, PAIRS, RESPONSES = 40, 10, 5  # without the check, a server ended after 1 to 8 such streams


@pytest.fixture(scope="module", params=["edge", "triton"])
def triton_config(request):
    with local_config(grpc_frontend=request.param) as config:
        yield config


@pytest.fixture(scope="module")
def plain(bind):
    return bind(double, max_batch_size=8)


def request(model, number, id="", **members):
    asked = service_pb2.ModelInferRequest(model_name=model, id=id, raw_input_contents=[np.float32(number).tobytes()])
    given = asked.inputs.add(name="x", datatype="FP32", shape=[1, 1])
    for member, value in members.items():
        if hasattr(given, member):
            setattr(given, member, value)
        else:
            setattr(asked, member, value)
    return asked


OTHERS = {
    "another model": lambda counter, plain: request(plain, 2, "other"),
    "no model": lambda counter, plain: request("missing", 2, "other"),
    "no version": lambda counter, plain: request(counter, 2, "other", model_version="7"),
    "bad version": lambda counter, plain: request(counter, 2, "other", model_version="x"),
    "wrong input": lambda counter, plain: request(plain, 2, "other", name="z"),
    "wrong dtype": lambda counter, plain: request(plain, 2, "other", datatype="INT8"),
    "wrong input of the decoupled model": lambda counter, plain: request(counter, 2, "other", name="z"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_any_request_may_be_on_a_stream_beside_those_of_a_decoupled_model(triton_config, counter, plain, other):
    pid = server_of(triton_config)
    pairs = [request(counter, RESPONSES, "counted"), OTHERS[other](counter, plain)] * PAIRS
    expected = {"counted": [0, 1, 2, 3, 4] * PAIRS, "other": [4.0] * PAIRS if other == "another model" else []}

    def stream(_):
        got, errors = {"counted": [], "other": []}, []
        with grpc.insecure_channel(f"{LOCALHOST}:{triton_config.grpc_port}") as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            for answer in stub.ModelStreamInfer(iter(pairs), timeout=DEADLINE_S):
                reply = answer.infer_response
                if answer.error_message:
                    errors.append(reply.id)
                elif reply.raw_output_contents:
                    got[reply.id].append(float(np.frombuffer(reply.raw_output_contents[0], np.float32)[0]))
        return {name: sorted(values) for name, values in got.items()}, errors

    with ThreadPoolExecutor(2) as threads:
        for got, errors in threads.map(stream, range(STREAMS)):
            assert got == {name: sorted(values) for name, values in expected.items()}
            assert errors == ([] if other == "another model" else ["other"] * PAIRS)
    assert server_of(triton_config) == pid


def test_requests_on_a_stream_are_answered_in_their_order(triton_config, counter, plain):
    asked = [request(plain, number, str(number)) for number in range(200)]
    with grpc.insecure_channel(f"{LOCALHOST}:{triton_config.grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        answers = [*stub.ModelStreamInfer(iter(asked), timeout=DEADLINE_S)]
    assert [answer.infer_response.id for answer in answers] == [each.id for each in asked]
    assert all(answer.infer_response.parameters["triton_final_response"].bool_param for answer in answers)
