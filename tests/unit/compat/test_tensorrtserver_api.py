"""The names, enumerations, messages and errors of the first protocol's API."""

import importlib

import pytest
from google.protobuf import json_format
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import InferenceServerException as TritonException

from pytriton.compat.tensorrtserver import api, messages
from pytriton.compat.tensorrtserver.api import (
    InferContext,
    InferenceServerException,
    InferRequestHeader,
    ProtocolType,
    SharedMemoryControlContext,
)
from pytriton.compat.tensorrtserver.exceptions import translated

STATUS = {
    "id": "triton",
    "version": "2.51.0",
    "ready_state": "SERVER_READY",
    "model_status": {
        "m": {
            "config": {"name": "m", "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": ["3"]}]},
            "version_status": {
                "1": {
                    "ready_state": "MODEL_LOADING",
                    "infer_stats": {"0": {"success": {"count": "2", "total_time_ns": "5"}}},
                    "model_execution_count": "7",
                }
            },
        }
    },
}


def test_a_star_import_gives_the_names_of_v1():
    found = {}
    exec("from pytriton.compat.tensorrtserver.api import *", found)
    assert {
        "InferContext", "InferRequestHeader", "InferenceServerException", "ModelControlContext",
        "ModelRepositoryContext", "ModelRepositoryIndex", "ProtocolType", "ServerHealthContext", "ServerStatus",
        "ServerStatusContext", "SharedMemoryControlContext", "SharedMemoryStatus", "model_config_pb2",
        "serialize_string_tensor",
    } <= found.keys()  # fmt: skip
    leaked = {"IntEnum", "c_void_p", "iteritems", "np", "os", "partial", "queue", "range", "struct", "sys", "threading"}
    assert leaked | {"zip"} <= found.keys()
    assert list(found["iteritems"]({"a": 1})) == [("a", 1)]
    assert all(hasattr(api, name) for name in api.__all__)


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        ("model_config_pb2", "TYPE_STRING", model_config_pb2.TYPE_STRING),
        ("model_config_pb2", "ModelConfig", model_config_pb2.ModelConfig),
        ("server_status_pb2", "SERVER_READY", 2),
        ("server_status_pb2", "SERVER_FAILED_TO_INITIALIZE", 10),
        ("server_status_pb2", "MODEL_UNLOADING", 4),
        ("server_status_pb2", "ServerStatus", api.ServerStatus),
        ("request_status_pb2", "INVALID_ARG", 5),
        ("api_pb2", "InferResponseHeader", api.InferResponseHeader),
        ("api_pb2", "InferRequestHeader", InferRequestHeader),
    ],
)
def test_the_modules_of_messages_can_be_imported_by_themselves(module, name, value):
    assert getattr(importlib.import_module(f"pytriton.compat.tensorrtserver.api.{module}"), name) == value


def test_the_flags_of_sequences_are_bits():
    assert (InferRequestHeader.FLAG_NONE, InferRequestHeader.Flag.Value("FLAG_SEQUENCE_START")) == (0, 1)
    assert InferRequestHeader.FLAG_SEQUENCE_END == 2


def test_protocols_have_names_and_numbers():
    assert (ProtocolType.HTTP, ProtocolType.GRPC) == (0, 1)
    assert [ProtocolType.from_str(text) for text in ("http", "HTTP", "gRPC")] == [0, 0, 1]
    with pytest.raises(ValueError, match="unexpected protocol 'smtp'"):
        ProtocolType.from_str("smtp")


def test_result_formats_differ():
    assert InferContext.ResultFormat.RAW != InferContext.ResultFormat.CLASS


def test_messages_hold_what_they_are_given():
    status = json_format.ParseDict(STATUS, api.ServerStatus())
    assert status.model_status["m"].version_status[1].infer_stats[0].success.total_time_ns == 5
    assert isinstance(status.model_status["m"].config, model_config_pb2.ModelConfig)
    assert json_format.MessageToDict(status, preserving_proto_field_name=True) == STATUS
    assert api.ServerStatus.FromString(status.SerializeToString()) == status


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (
            "InferRequestHeader",
            "id flags correlation_id batch_size input output priority timeout_microseconds",
        ),
        ("InferRequestHeader.Input", "name dims batch_byte_size shared_memory"),
        ("InferRequestHeader.Output", "name shared_memory cls"),
        ("InferResponseHeader", "id model_name model_version batch_size output"),
        ("InferResponseHeader.Output", "name raw batch_classes"),
        ("RequestStatus", "code msg server_id request_id"),
        (
            "ModelVersionStatus",
            "ready_state ready_state_reason infer_stats model_execution_count model_inference_count "
            "last_inference_timestamp_milliseconds",
        ),
        (
            "ServerStatus",
            "id version ready_state uptime_ns model_status status_stats trace_control_stats health_stats "
            "model_control_stats shm_control_stats repository_stats",
        ),
        ("SharedMemoryRegion", "name system_shared_memory cuda_shared_memory byte_size"),
        ("ModelRepositoryIndex.ModelEntry", "name"),
    ],
)
def test_messages_have_the_fields_of_v1(name, fields):
    outer, *inner = name.split(".")
    message = getattr(messages, outer)
    for part in inner:
        message = getattr(message, part)
    assert {field.name for field in message.DESCRIPTOR.fields} == set(fields.split())


def test_a_region_is_of_one_kind():
    region = api.SharedMemoryStatus().shared_memory_region.add(name="r", byte_size=2**40)
    assert region.WhichOneof("shared_memory_types") is None
    region.system_shared_memory.offset = 4
    region.cuda_shared_memory.device_id = 0
    assert region.WhichOneof("shared_memory_types") == "cuda_shared_memory"
    assert not region.HasField("system_shared_memory")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, None),
        ("text", "text"),
        (KeyError("name"), "'name'"),
        (TritonException("refused", "400"), "refused"),
    ],
)
def test_an_error_takes_its_message_from_anything(given, message):
    error = InferenceServerException(given)
    assert (error.message(), error.request_id(), error.server_id()) == (message, 0, None)
    assert str(error) == (message or "")


def test_an_error_names_a_known_server_and_the_request():
    error = InferenceServerException("refused")
    error.identify(3, "triton")
    assert str(error) == "[triton 3] refused"
    assert error.message() == "refused"


def test_any_error_becomes_one_of_v1_with_its_cause():
    cause = OSError("broken")
    with pytest.raises(InferenceServerException, match=r"^broken$") as raised, translated():
        raise cause
    assert raised.value.__context__ is cause
    assert raised.value.__suppress_context__
    own = InferenceServerException("own")
    with pytest.raises(InferenceServerException) as raised, translated():
        raise own
    assert raised.value is own


class Holder:
    """The connection to a server that refuses to unregister regions so many times."""

    def __init__(self, refusals: int) -> None:
        self.refusals, self.calls = refusals, []

    def call(self, method, arguments, timeout_s):
        self.calls.append((method, arguments))
        if self.refusals:
            self.refusals -= 1
            raise InferenceServerException("Cannot unregister shared memory region 'r', it is currently in use.")

    def close(self):
        pass


@pytest.fixture
def control():
    with SharedMemoryControlContext("localhost:1", ProtocolType.HTTP) as context:
        yield context


def test_a_region_that_is_in_use_for_a_moment_longer_is_unregistered(control):
    control._connection = server = Holder(2)
    control.unregister({"name": "r", "key": "/r", "byte_size": 8})
    assert server.calls == [("unregister_system_shared_memory", {"name": "r"})] * 3
    control._connection = server = Holder(1)
    control.unregister_all()
    assert [method.split("_")[1] for method, _ in server.calls] == ["system", "system", "cuda"]


def test_a_region_that_stays_in_use_is_an_error(control):
    control._connection = Holder(10**6)
    with pytest.raises(InferenceServerException, match="currently in use"):
        control.unregister({"name": "r", "key": "/r", "byte_size": 8})
