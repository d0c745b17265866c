"""The messages of v1, as protobuf messages in a package of our own.

They are made at import, from the tables below, because no server sends them any more: contexts fill them. The model's
configuration, of which the second protocol has the same message, is tritonclient's.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from tritonclient.grpc import model_config_pb2

__all__ = [
    "HealthRequestStats",
    "InferRequestHeader",
    "InferRequestStats",
    "InferResponseHeader",
    "InferSharedMemory",
    "ModelControlRequestStats",
    "ModelReadyState",
    "ModelReadyStateReason",
    "ModelRepositoryIndex",
    "ModelStatus",
    "ModelVersionStatus",
    "RepositoryRequestStats",
    "RequestStatus",
    "RequestStatusCode",
    "ServerReadyState",
    "ServerStatus",
    "SharedMemoryControlRequestStats",
    "SharedMemoryRegion",
    "SharedMemoryStatus",
    "StatDuration",
    "StatusRequestStats",
    "TraceControlRequestStats",
]

_PACKAGE = "pytriton.compat.tensorrtserver"
_MODEL_CONFIG = model_config_pb2.ModelConfig.DESCRIPTOR
_Field = descriptor_pb2.FieldDescriptorProto

_ENUMS = {
    "ServerReadyState": {
        "SERVER_INVALID": 0,
        "SERVER_INITIALIZING": 1,
        "SERVER_READY": 2,
        "SERVER_EXITING": 3,
        "SERVER_FAILED_TO_INITIALIZE": 10,
    },
    "ModelReadyState": {
        "MODEL_UNKNOWN": 0,
        "MODEL_READY": 1,
        "MODEL_UNAVAILABLE": 2,
        "MODEL_LOADING": 3,
        "MODEL_UNLOADING": 4,
    },
    "RequestStatusCode": {
        "INVALID": 0,
        "SUCCESS": 1,
        "UNKNOWN": 2,
        "INTERNAL": 3,
        "NOT_FOUND": 4,
        "INVALID_ARG": 5,
        "UNAVAILABLE": 6,
        "UNSUPPORTED": 7,
        "ALREADY_EXISTS": 8,
    },
}
_FLAGS = {"FLAG_NONE": 0, "FLAG_SEQUENCE_START": 1, "FLAG_SEQUENCE_END": 2}

# A field: its name, its number, its type; of a map, the types of key and value. Messages with a dot in their names are
# part of others.
_MESSAGES: dict[str, list[tuple[str, int, str]]] = {
    "InferSharedMemory": [("name", 1, "string"), ("offset", 2, "uint64"), ("byte_size", 3, "uint64")],
    "InferRequestHeader.Input": [
        ("name", 1, "string"),
        ("dims", 2, "repeated int64"),
        ("batch_byte_size", 3, "uint64"),
        ("shared_memory", 4, "InferSharedMemory"),
    ],
    "InferRequestHeader.Output.Class": [("count", 1, "uint32")],
    "InferRequestHeader.Output": [
        ("name", 1, "string"),
        ("shared_memory", 2, "InferSharedMemory"),
        ("cls", 3, "InferRequestHeader.Output.Class"),
    ],
    "InferRequestHeader": [
        ("id", 5, "uint64"),
        ("flags", 6, "uint32"),
        ("correlation_id", 4, "uint64"),
        ("batch_size", 1, "uint32"),
        ("input", 2, "repeated InferRequestHeader.Input"),
        ("output", 3, "repeated InferRequestHeader.Output"),
        ("priority", 7, "uint32"),
        ("timeout_microseconds", 8, "uint64"),
    ],
    "InferResponseHeader.Output.Raw": [("dims", 1, "repeated int64"), ("batch_byte_size", 2, "uint64")],
    "InferResponseHeader.Output.Class": [("idx", 1, "int32"), ("value", 2, "float"), ("label", 3, "string")],
    "InferResponseHeader.Output.Classes": [("cls", 1, "repeated InferResponseHeader.Output.Class")],
    "InferResponseHeader.Output": [
        ("name", 1, "string"),
        ("raw", 2, "InferResponseHeader.Output.Raw"),
        ("batch_classes", 3, "repeated InferResponseHeader.Output.Classes"),
    ],
    "InferResponseHeader": [
        ("id", 5, "uint64"),
        ("model_name", 1, "string"),
        ("model_version", 2, "int64"),
        ("batch_size", 3, "uint32"),
        ("output", 4, "repeated InferResponseHeader.Output"),
    ],
    "RequestStatus": [
        ("code", 1, "RequestStatusCode"),
        ("msg", 2, "string"),
        ("server_id", 3, "string"),
        ("request_id", 4, "uint64"),
    ],
    "StatDuration": [("count", 1, "uint64"), ("total_time_ns", 2, "uint64")],
    "StatusRequestStats": [("success", 1, "StatDuration")],
    "TraceControlRequestStats": [("success", 1, "StatDuration")],
    "HealthRequestStats": [("success", 1, "StatDuration")],
    "ModelControlRequestStats": [("success", 1, "StatDuration")],
    "SharedMemoryControlRequestStats": [("success", 1, "StatDuration")],
    "RepositoryRequestStats": [("success", 1, "StatDuration")],
    "InferRequestStats": [
        ("success", 1, "StatDuration"),
        ("failed", 2, "StatDuration"),
        ("compute", 3, "StatDuration"),
        ("queue", 4, "StatDuration"),
    ],
    "ModelReadyStateReason": [("message", 1, "string")],
    "ModelVersionStatus": [
        ("ready_state", 1, "ModelReadyState"),
        ("infer_stats", 2, "uint32 InferRequestStats"),
        ("model_execution_count", 3, "uint64"),
        ("model_inference_count", 4, "uint64"),
        ("ready_state_reason", 5, "ModelReadyStateReason"),
        ("last_inference_timestamp_milliseconds", 6, "uint64"),
    ],
    "ModelStatus": [("config", 1, "ModelConfig"), ("version_status", 2, "int64 ModelVersionStatus")],
    "ServerStatus": [
        ("id", 1, "string"),
        ("version", 2, "string"),
        ("uptime_ns", 3, "uint64"),
        ("model_status", 4, "string ModelStatus"),
        ("status_stats", 5, "StatusRequestStats"),
        ("trace_control_stats", 6, "TraceControlRequestStats"),
        ("ready_state", 7, "ServerReadyState"),
        ("health_stats", 8, "HealthRequestStats"),
        ("model_control_stats", 9, "ModelControlRequestStats"),
        ("shm_control_stats", 10, "SharedMemoryControlRequestStats"),
        ("repository_stats", 11, "RepositoryRequestStats"),
    ],
    "ModelRepositoryIndex.ModelEntry": [("name", 1, "string")],
    "ModelRepositoryIndex": [("models", 1, "repeated ModelRepositoryIndex.ModelEntry")],
    "SharedMemoryRegion.SystemSharedMemory": [("shared_memory_key", 1, "string"), ("offset", 2, "uint64")],
    "SharedMemoryRegion.CudaSharedMemory": [("device_id", 1, "int64")],
    "SharedMemoryRegion": [
        ("name", 1, "string"),
        ("system_shared_memory", 2, "SharedMemoryRegion.SystemSharedMemory"),
        ("cuda_shared_memory", 3, "SharedMemoryRegion.CudaSharedMemory"),
        ("byte_size", 5, "uint64"),
    ],
    "SharedMemoryStatus": [("shared_memory_region", 2, "repeated SharedMemoryRegion")],
}
_ONE_OF = {"system_shared_memory": "shared_memory_types", "cuda_shared_memory": "shared_memory_types"}


def _add_field(message: Any, path: str, name: str, number: int, kind: str) -> None:
    *outer, kind = kind.split()
    field = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if outer:
        field.label = _Field.LABEL_REPEATED
    if outer and outer != ["repeated"]:
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")  # as protobuf wants it
        entry.options.map_entry = True
        _add_field(entry, path, "key", 1, outer[0])
        _add_field(entry, path, "value", 2, kind)
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{path}.{entry.name}"
    elif kind == "ModelConfig":
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_MODEL_CONFIG.full_name}"
    elif kind in _MESSAGES or kind in _ENUMS:
        field.type = _Field.TYPE_MESSAGE if kind in _MESSAGES else _Field.TYPE_ENUM
        field.type_name = f".{_PACKAGE}.{kind}"
    else:
        field.type = _Field.Type.Value(f"TYPE_{kind.upper()}")
    if name in _ONE_OF:
        if not message.oneof_decl:
            message.oneof_decl.add(name=_ONE_OF[name])
        field.oneof_index = 0


def _add_enum(enum: Any, values: dict[str, int]) -> None:
    for name, number in values.items():
        enum.value.add(name=name, number=number)


def _described() -> Any:
    """The tables' descriptor, known to protobuf."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3", dependency=[_MODEL_CONFIG.file.name]
    )
    for name, values in _ENUMS.items():
        _add_enum(file.enum_type.add(name=name), values)
    messages = {"": file.message_type}
    for path in sorted(_MESSAGES):  # the outer ones first
        outer, _, name = path.rpartition(".")
        message = messages[outer].add(name=name)
        messages[path] = message.nested_type
        for field in _MESSAGES[path]:
            _add_field(message, path, *field)
        if path == "InferRequestHeader":
            _add_enum(message.enum_type.add(name="Flag"), _FLAGS)
    pool = _MODEL_CONFIG.file.pool
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindFileByName(file.name)


_FILE = _described()


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_FILE.message_types_by_name[name])


def _enum(name: str) -> Any:
    return EnumTypeWrapper(_FILE.enum_types_by_name[name])


InferRequestHeader = _message("InferRequestHeader")
"""Its ``FLAG_...`` are the flags of :meth:`InferContext.run`; contexts do not send it."""

InferResponseHeader = _message("InferResponseHeader")
InferSharedMemory = _message("InferSharedMemory")
RequestStatusCode = _enum("RequestStatusCode")
RequestStatus = _message("RequestStatus")
ServerReadyState = _enum("ServerReadyState")
ModelReadyState = _enum("ModelReadyState")
ModelReadyStateReason = _message("ModelReadyStateReason")
StatDuration = _message("StatDuration")
StatusRequestStats = _message("StatusRequestStats")
TraceControlRequestStats = _message("TraceControlRequestStats")
HealthRequestStats = _message("HealthRequestStats")
ModelControlRequestStats = _message("ModelControlRequestStats")
SharedMemoryControlRequestStats = _message("SharedMemoryControlRequestStats")
RepositoryRequestStats = _message("RepositoryRequestStats")
InferRequestStats = _message("InferRequestStats")
ModelVersionStatus = _message("ModelVersionStatus")
ModelStatus = _message("ModelStatus")
ServerStatus = _message("ServerStatus")
ModelRepositoryIndex = _message("ModelRepositoryIndex")
SharedMemoryRegion = _message("SharedMemoryRegion")
SharedMemoryStatus = _message("SharedMemoryStatus")
