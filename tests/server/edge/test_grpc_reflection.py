"""Reflection at the edge, with gRPC's own client of it: what is served is described as its clients know it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection_pb2 as pb
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tritonclient.grpc import model_config_pb2, service_pb2

from pytriton.triton import TritonConfig, TritonSecurityConfig
from tests.server.conftest import LOCALHOST, local_config
from tests.server.own_server import server_of, serving
from tests.server.processes import DEADLINE_S

pytestmark = pytest.mark.either_proxy

SERVICE = "inference.GRPCInferenceService"
KNOWN = {file.DESCRIPTOR.name: file.DESCRIPTOR for file in (service_pb2, model_config_pb2)}
HEALTH = "grpc/health/v1/health.proto"


@pytest.fixture(scope="module")
def config() -> Iterator[TritonConfig]:
    """Of a server where metadata need a token, and so reflection does."""
    with (
        local_config(grpc_frontend="edge", grpc_infer_response_compression_level="low") as config,
        serving(config, security_config=TritonSecurityConfig("secret", ["metadata"])) as triton,
    ):
        triton.run()
        pid = server_of(config)
        yield config
        assert server_of(config) == pid


@pytest.fixture(scope="module")
def stranger(config: TritonConfig) -> Iterator[Any]:
    with grpc.insecure_channel(f"{LOCALHOST}:{config.grpc_port}") as channel:
        yield channel


@pytest.fixture(scope="module")
def channel(stranger: Any) -> Any:
    return grpc.intercept_channel(stranger, Token())


class Token(grpc.StreamStreamClientInterceptor, grpc.UnaryUnaryClientInterceptor):
    """Sends the token with each call."""

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        return continuation(with_token(details), requests)

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(with_token(details), request)


def with_token(details: Any) -> Any:
    return details._replace(metadata=[("triton-grpc-protocol-triton-access-token", "secret")])


def ask(channel: Any, *requests: Any, version: str = "v1") -> list[Any]:
    call = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=pb.ServerReflectionResponse.FromString,
    )
    return [*call(iter(requests), timeout=DEADLINE_S)]


def files(response: Any) -> list[bytes]:
    return [*response.file_descriptor_response.file_descriptor_proto]


def test_a_client_without_files_calls_a_method(channel):
    database = ProtoReflectionDescriptorDatabase(channel)
    assert {*database.get_services()} == {SERVICE, "grpc.health.v1.Health"}
    method = DescriptorPool(database).FindServiceByName(SERVICE).FindMethodByName("ServerMetadata")
    request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    call = channel.unary_unary(
        f"/{SERVICE}/ServerMetadata",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )
    assert call(request(), timeout=DEADLINE_S).name == "triton"


def test_the_health_that_is_described_is_served(channel):
    service = DescriptorPool(ProtoReflectionDescriptorDatabase(channel)).FindServiceByName("grpc.health.v1.Health")
    (method,) = service.methods
    call = channel.unary_unary(
        f"/grpc.health.v1.Health/{method.name}",
        request_serializer=GetMessageClass(method.input_type).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    response = call(GetMessageClass(method.input_type)(service=""), timeout=DEADLINE_S)
    assert response.DESCRIPTOR.enum_types_by_name["ServingStatus"].values_by_number[response.status].name == "SERVING"


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_files_are_those_of_the_clients_with_what_they_need(channel, name, version):
    (response,) = ask(channel, pb.ServerReflectionRequest(host="h", file_by_filename=name), version=version)
    expected = [KNOWN[name], *KNOWN[name].dependencies]
    assert files(response) == [each.serialized_pb for each in expected]
    assert (response.valid_host, response.original_request.file_by_filename) == ("h", name)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        (SERVICE, "grpc_service.proto"),
        (f"{SERVICE}.ModelInfer", "grpc_service.proto"),
        ("inference.ModelInferRequest", "grpc_service.proto"),
        ("inference.ModelInferRequest.InferInputTensor", "grpc_service.proto"),
        ("inference.ModelInferRequest.InferInputTensor.shape", "grpc_service.proto"),
        ("inference.ModelConfig", "model_config.proto"),
        ("inference.DataType", "model_config.proto"),
        ("inference.ModelInstanceGroup.Kind", "model_config.proto"),
        ("grpc.health.v1.Health.Check", HEALTH),
        ("grpc.health.v1.HealthCheckResponse.ServingStatus", HEALTH),
    ],
)
def test_symbols_lead_to_their_file(channel, symbol, name):
    (response,) = ask(channel, pb.ServerReflectionRequest(file_containing_symbol=symbol))
    assert FileDescriptorProto.FromString(files(response)[0]).name == name


def test_each_message_of_the_clients_is_found(channel):
    names = [each.full_name for file in KNOWN.values() for each in file.message_types_by_name.values()]
    answers = ask(channel, *(pb.ServerReflectionRequest(file_containing_symbol=name) for name in names))
    assert len(names) > 50
    assert all(files(answer) for answer in answers)


@pytest.mark.parametrize(
    "symbol",
    ["", "inference", "inference.", "inference.Model", "inference.ModelInferRequest.", "inference.ModelInferRequestX",
     "ModelInferRequest", "other.ModelInferRequest", f"{SERVICE}.Nothing", ".inference.ModelConfig"],
)  # fmt: skip
def test_what_is_not_there_is_not_found(channel, symbol):
    (response,) = ask(channel, pb.ServerReflectionRequest(file_containing_symbol=symbol))
    assert (response.error_response.error_code, files(response)) == (grpc.StatusCode.NOT_FOUND.value[0], [])


def test_requests_of_one_stream_are_answered_in_their_order(channel):
    asked = [
        pb.ServerReflectionRequest(list_services=""),
        pb.ServerReflectionRequest(file_by_filename="nothing.proto"),
        pb.ServerReflectionRequest(all_extension_numbers_of_type="inference.ModelConfig"),
        pb.ServerReflectionRequest(
            file_containing_extension=pb.ExtensionRequest(containing_type="inference.ModelConfig", extension_number=1)
        ),
        pb.ServerReflectionRequest(),
        pb.ServerReflectionRequest(file_containing_symbol=SERVICE),
    ]
    answers = ask(channel, *asked * 50)
    assert [each.original_request for each in answers] == asked * 50
    kinds = [each.WhichOneof("message_response") for each in answers[:6]]
    assert kinds == ["list_services_response", *["error_response"] * 4, "file_descriptor_response"]
    assert [each.error_response.error_code for each in answers[1:5]] == [5, 5, 5, 3]


def test_reflection_needs_what_metadata_need(stranger):
    with pytest.raises(grpc.RpcError, match="restricted"):
        ask(stranger, pb.ServerReflectionRequest(list_services=""))


def test_a_message_that_is_none_ends_the_stream(channel):
    call = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    with pytest.raises(grpc.RpcError) as raised:
        [*call(iter([b"\x3a\xff"]), timeout=DEADLINE_S)]
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_tritons_own_endpoint_has_none(free_config):
    config = replace(free_config, grpc_frontend="triton")
    with serving(config) as triton:
        triton.run()
        with (
            grpc.insecure_channel(f"{LOCALHOST}:{config.grpc_port}") as channel,
            pytest.raises(grpc.RpcError) as raised,
        ):
            ask(channel, pb.ServerReflectionRequest(list_services=""), version="v1alpha")
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
