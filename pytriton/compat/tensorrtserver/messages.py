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
    "InferRequestHeader",
    "ModelReadyState",
    "ModelRepositoryIndex",
    "ServerReadyState",
    "ServerStatus",
    "SharedMemoryStatus",
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
}
_FLAGS = {"FLAG_NONE": 0, "FLAG_SEQUENCE_START": 1, "FLAG_SEQUENCE_END": 2}

# A field: its name, its number, its type; of a map, the types of key and value.
_MESSAGES: dict[str, list[tuple[str, int, str]]] = {
    "InferRequestHeader": [("flags", 5, "uint32")],
    "StatDuration": [("count", 1, "uint64"), ("total_time_ns", 2, "uint64")],
    "SuccessStats": [("success", 1, "StatDuration")],
    "InferRequestStats": [
        ("success", 1, "StatDuration"),
        ("failed", 2, "StatDuration"),
        ("compute", 3, "StatDuration"),
        ("queue", 4, "StatDuration"),
    ],
    "ModelVersionStatus": [
        ("ready_state", 1, "ModelReadyState"),
        ("infer_stats", 2, "uint32 InferRequestStats"),
        ("model_execution_count", 3, "uint64"),
        ("model_inference_count", 4, "uint64"),
    ],
    "ModelStatus": [("config", 1, "ModelConfig"), ("version_status", 2, "int64 ModelVersionStatus")],
    "ServerStatus": [
        ("id", 1, "string"),
        ("version", 2, "string"),
        ("uptime_ns", 3, "uint64"),
        ("model_status", 4, "string ModelStatus"),
        ("status_stats", 5, "SuccessStats"),
        ("trace_control_stats", 6, "SuccessStats"),
        ("ready_state", 7, "ServerReadyState"),
        ("health_stats", 8, "SuccessStats"),
        ("model_control_stats", 9, "SuccessStats"),
        ("shm_control_stats", 10, "SuccessStats"),
    ],
    "ModelEntry": [("name", 1, "string")],
    "ModelRepositoryIndex": [("models", 1, "repeated ModelEntry")],
    "SystemSharedMemory": [("shared_memory_key", 1, "string"), ("offset", 2, "uint64")],
    "CudaSharedMemory": [("device_id", 1, "int64")],
    "SharedMemoryRegion": [
        ("name", 1, "string"),
        ("system_shared_memory", 2, "SystemSharedMemory"),
        ("cuda_shared_memory", 3, "CudaSharedMemory"),
        ("byte_size", 5, "uint64"),
    ],
    "SharedMemoryStatus": [("shared_memory_region", 2, "repeated SharedMemoryRegion")],
}
_ONE_OF = {"system_shared_memory": "shared_memory_types", "cuda_shared_memory": "shared_memory_types"}


def _add_field(message: Any, name: str, number: int, kind: str) -> None:
    *outer, kind = kind.split()
    field = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if outer:
        field.label = _Field.LABEL_REPEATED
    if outer and outer != ["repeated"]:
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")  # as protobuf wants it
        entry.options.map_entry = True
        _add_field(entry, "key", 1, outer[0])
        _add_field(entry, "value", 2, kind)
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{message.name}.{entry.name}"
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
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            _add_field(message, *field)
        if name == "InferRequestHeader":
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
"""Its ``FLAG_...`` are the flags of :meth:`InferContext.run`; nothing else of it is used."""

ServerReadyState = _enum("ServerReadyState")
ModelReadyState = _enum("ModelReadyState")
ServerStatus = _message("ServerStatus")
ModelRepositoryIndex = _message("ModelRepositoryIndex")
SharedMemoryStatus = _message("SharedMemoryStatus")
