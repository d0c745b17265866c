"""The edge's tables of gRPC's messages are those of the protocol's own files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from tritonclient.grpc import model_config_pb2, service_pb2

import pytriton

TABLES = (Path(pytriton.__file__).parent / "native" / "grpc" / "model_messages.cpp").read_text(encoding="utf-8")
MESSAGES = {
    "kServerMetadata": service_pb2.ServerMetadataResponse,
    "kModelMetadata": service_pb2.ModelMetadataResponse,
    "kModelConfig": model_config_pb2.ModelConfig,
    "kStatistics": service_pb2.ModelStatisticsResponse,
    "kIndexEntry": service_pb2.RepositoryIndexResponse.ModelIndex,
}
INTEGERS = ("INT32", "INT64", "UINT32", "UINT64")
KINDS = {"STRING": "", "BOOL": "kFlag", "FLOAT": "kReal", "DOUBLE": "kNumber", "ENUM": "kChoice"} | dict.fromkeys(
    INTEGERS, "kInteger"
)
TYPES = {getattr(FieldDescriptor, name): name[5:] for name in dir(FieldDescriptor) if name.startswith("TYPE_")}

Table = dict[str, tuple[int, str, Any]]


def table_of(name: str) -> Table:
    """What the table says: number, kind, and the table of each field's message."""
    found = re.search(rf"MessageField {name}\[\] = \{{(.*?)\}};", TABLES, re.DOTALL)
    assert found, f"there is no table {name}"
    rows = re.findall(r'\{"(\w+)",\s*(\d+)(?:,\s*(\w+))?(?:,\s*(\w+))?\}', found[1])
    return {field: (int(number), kind, table_of(inner) if inner else None) for field, number, kind, inner in rows}


def described(message: Any) -> Table:
    """The same, of the protocol."""
    found: Table = {}
    for field in message.fields:
        inner = field.message_type
        if inner is None:
            found[field.name] = field.number, KINDS[TYPES[field.type]], None
        elif inner.GetOptions().map_entry:
            kind = "kMap" if inner.fields_by_name["key"].type == FieldDescriptor.TYPE_STRING else "kNumberedMap"
            value = inner.fields_by_name["value"].message_type
            found[field.name] = field.number, kind, described(value) if value else None
        else:
            found[field.name] = field.number, "kMessage", described(inner)
    return found


def enumerations(holder: Any) -> Iterator[Any]:
    yield from (holder.enum_types if hasattr(holder, "enum_types") else holder.enum_types_by_name.values())
    inner = holder.nested_types if hasattr(holder, "nested_types") else holder.message_types_by_name.values()
    for each in inner:
        yield from enumerations(each)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_table_has_the_fields_of_its_message(name):
    assert table_of(name) == described(MESSAGES[name].DESCRIPTOR)


def test_the_names_of_enumerations_have_their_numbers_and_are_unique():
    values = [(value.name, value.number) for each in enumerations(model_config_pb2.DESCRIPTOR) for value in each.values]
    assert len({name for name, _ in values}) == len(values)
    choices = TABLES[TABLES.index("kChoices[]") :]
    found = re.findall(r'\{"(\w+)",\s*(\d+)\}', choices[: choices.index("};")])
    assert {(name, int(number)) for name, number in found} == set(values)
