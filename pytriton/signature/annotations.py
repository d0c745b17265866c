"""Annotations as schemas, with the functions that make the Python objects of parameters."""

from __future__ import annotations

import base64
import collections.abc as abc
import datetime
import io
import json
import os
import re
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin
from uuid import UUID

import numpy as np

from pytriton.model_config.dtypes import triton_name
from pytriton.signature.foreign import image_of, is_table, is_tensor, table_of, tensor_of_array
from pytriton.signature.json_values import to_json
from pytriton.signature.records import Docstring, UnderivableError, fields_of, is_record
from pytriton.signature.schema import Schema, is_native
from pytriton.signature.validation import problems

__all__ = ["OF_DATES", "Annotations", "Kind", "default_of", "split"]

Load = Callable[[Any], Any]

NONE = (None, type(None))
SCALARS: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
BYTES: Schema = {"type": "string", "contentEncoding": "base64"}
IMAGE: Schema = {**BYTES, "contentMediaType": "image/*"}
LISTS: dict[Any, Load | None] = {list: None, tuple: tuple, set: set, frozenset: frozenset}
LISTS |= dict.fromkeys((abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable))
LISTS |= {abc.Set: set, abc.MutableSet: set}
OBJECTS = (dict, abc.Mapping, abc.MutableMapping)
OF_DATES: dict[Any, tuple[str, Load]] = {
    datetime.datetime: ("date-time", lambda text: datetime.datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))),
    datetime.date: ("date", datetime.date.fromisoformat),
    datetime.time: ("time", lambda text: datetime.time.fromisoformat(re.sub("[zZ]$", "+00:00", text))),
    UUID: ("uuid", UUID),
}
DECIMAL: Schema = {"type": "string", "format": "decimal"}
INSTEAD: dict[Any, str] = {
    os.PathLike: "str for a name, or bytes for what is in the file",
    datetime.timedelta: "float for seconds",
    datetime.tzinfo: "str for a name",
    io.IOBase: "bytes",
}
QUALIFIERS = ("Required", "NotRequired", "ReadOnly", "Final")
NUMBERS_OF_KIND = {"b": "boolean", "i": "integer", "u": "integer", "f": "number"}
KEYWORDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
KEYWORDS |= {"multiple_of": "multipleOf", "pattern": "pattern", "description": "description", "title": "title"}
KEYWORDS |= {"documentation": "description", "examples": "examples"}


@dataclass(frozen=True)
class Kind:
    """The form in which values of an annotation are sent.

    Attributes:
        schema: Of a value. That of an array may have None as ``dtype`` or ``shape``, which an example has to tell.
        load: Makes the function's object of a valid value; None takes the value itself. It raises ValueError,
            TypeError or OSError if the value is not valid after all.
    """

    schema: Schema
    load: Load | None = None


class Annotations:
    """Makes kinds of annotations.

    Attributes:
        definitions: The schemas of records, by the name that ``$ref`` has.
    """

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self._references: dict[Any, Schema] = {}
        self._loads: dict[Any, Load] = {}

    def of(self, annotation: Any) -> Kind:
        """The kind of an annotation.

        Raises:
            UnderivableError: It has none.
        """
        kind = self._kind(annotation, inside=False)
        if not is_native(kind.schema):
            kind = self._kind(annotation, inside=True)
            kind = Kind({**kind.schema, "encoding": "json"}, kind.load)
        return kind

    def of_input(self, annotation: Any) -> tuple[Kind, bool]:
        """The kind of a parameter without None, and whether it may be None; raises as :meth:`of`."""
        bare, metadata, optional = split(annotation)
        return self.of(typing.Annotated[(bare, *metadata)] if metadata else bare), optional

    def _kind(self, annotation: Any, inside: bool) -> Kind:
        bare, metadata, optional = split(annotation)
        kind = self._bare(bare, inside)
        if metadata:
            kind = Kind({**kind.schema, **_constraints(kind.schema, metadata)}, kind.load)
        if optional:
            load = kind.load
            schema = {"anyOf": [kind.schema, {"type": "null"}]}
            return Kind(schema, load and (lambda value: None if value is None else load(value)))
        return kind

    def _bare(self, bare: Any, inside: bool) -> Kind:
        origin, args = get_origin(bare) or bare, get_args(bare)
        if bare in NONE:
            return Kind({"type": "null"})
        if bare in (Any, object):
            return Kind({})
        if (scalar := _scalar(bare, origin, inside)) or (scalar := _array(bare, origin, args, inside)):
            return scalar
        if origin in (Union, types.UnionType):
            return self._union(args)
        if origin is tuple and args and args[-1] is not ...:
            return self._fixed(args)
        if origin in LISTS:
            return self._list(args[0] if args else Any, LISTS[origin], inside)
        if origin in OBJECTS:
            return self._object(args)
        if is_record(origin):
            return self._record(origin)
        kinds = (kind for kind in INSTEAD if isinstance(origin, type) and issubclass(origin, kind))
        raise UnderivableError(f"{_named(bare)} is not a supported type", INSTEAD.get(next(kinds, None), ""))

    def _union(self, args: Sequence[Any]) -> Kind:
        kinds = [self._kind(arg, inside=True) for arg in args]

        def load(value: Any) -> Any:
            refusal: ValueError | None = None
            for kind in kinds:
                if not problems(kind.schema, value, self.definitions, inside=True):
                    try:
                        return kind.load(value) if kind.load else value
                    except ValueError as error:  # a text that is no date, for instance
                        refusal = refusal or error
            if refusal is not None:
                raise refusal
            return value

        return Kind({"anyOf": [kind.schema for kind in kinds]}, load)

    def _fixed(self, args: Sequence[Any]) -> Kind:
        kinds = [self._kind(arg, inside=True) for arg in args]
        size = len(kinds)
        schema = {"type": "array", "prefixItems": [kind.schema for kind in kinds], "minItems": size, "maxItems": size}
        return Kind(schema, lambda value: tuple(_loaded(kind, item) for kind, item in zip(kinds, value, strict=True)))

    def _list(self, item: Any, make: Load | None, inside: bool) -> Kind:
        kind = self._kind(item, inside)
        load = kind.load
        schema = {"type": "array", "items": kind.schema}
        if load is None:
            return Kind(schema, make)
        return Kind(schema, lambda value: (make or list)(map(load, value)))

    def _object(self, args: Sequence[Any]) -> Kind:
        key = self._kind(args[0] if args else str, inside=True)
        is_text = not key.schema or (key.schema.get("type") == "string" and key.schema.keys() <= {"type", "enum"})
        if not is_text:
            raise UnderivableError(
                f"the keys of a dict must be str, or an Enum or Literal of str, not {_named(args[0])}"
            )
        kind = self._kind(args[1] if args else Any, inside=True)
        schema: Schema = {"type": "object", **({"additionalProperties": kind.schema} if kind.schema else {})}
        if "enum" in key.schema:
            schema["propertyNames"] = {"enum": key.schema["enum"]}
        if kind.load is None and key.load is None:
            return Kind(schema)
        return Kind(schema, lambda value: {_loaded(key, name): _loaded(kind, item) for name, item in value.items()})

    def _record(self, cls: Any) -> Kind:
        if cls not in self._references:
            name, number = cls.__name__, 1
            while name in self.definitions:
                number += 1
                name = f"{cls.__name__}{number}"
            self._references[cls] = {"$ref": f"#/$defs/{name}"}
            self.definitions[name] = {}  # for fields of its own class
            if hasattr(cls, "model_json_schema"):
                self._define_model(cls, name)
            else:
                self._define_record(cls, name)
        return Kind(self._references[cls], lambda value: self._loads[cls](value))

    def _define_model(self, cls: Any, name: str) -> None:
        schema = cls.model_json_schema(ref_template="#/$defs/{model}")
        self.definitions |= schema.pop("$defs", {})
        if "$ref" in schema:  # it refers to itself
            self._references[cls] = schema
        else:
            self.definitions[name] = schema
        self._loads[cls] = lambda value: cls.model_validate_json(json.dumps(value))

    def _define_record(self, cls: Any, name: str) -> None:
        fields = fields_of(cls)
        kinds = {field.name: self._kind(field.annotation, inside=True) for field in fields}
        properties = {}
        for field in fields:
            schema = kinds[field.name].schema
            told = {"description": field.description} if field.description else {}
            properties[field.name] = {**told, **schema, **default_of(field.default)}
        required = [field.name for field in fields if field.required]
        about = Docstring.of(cls).summary
        self.definitions[name] = {
            "type": "object",
            **({"description": about} if about else {}),
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
        self._loads[cls] = lambda value: cls(
            **{field: _loaded(kinds[field], item) for field, item in value.items() if field in kinds}
        )


def split(annotation: Any) -> tuple[Any, list[Any], bool]:
    """An annotation without aliases, ``Annotated``, qualifiers and None; its metadata; and whether it may be None."""
    metadata: list[Any] = []
    optional = False
    while True:
        origin = get_origin(annotation)
        if hasattr(annotation, "__metadata__"):
            metadata += annotation.__metadata__
            annotation = annotation.__origin__
        elif type(annotation).__name__ == "TypeAliasType":  # PEP 695's, or that of typing_extensions
            annotation = annotation.__value__
        elif type(origin).__name__ == "TypeAliasType":
            annotation = origin.__value__[get_args(annotation)]
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif origin is not None and str(origin).rpartition(".")[2] in QUALIFIERS:
            (annotation,) = get_args(annotation)
        elif isinstance(annotation, typing.TypeVar):
            annotation = annotation.__bound__ or Any
        elif origin in (Union, types.UnionType) and type(None) in get_args(annotation):
            optional = True
            annotation = Union[tuple(arg for arg in get_args(annotation) if arg is not type(None))]  # noqa: UP007
        else:
            return annotation, metadata, optional


def _scalar(bare: Any, origin: Any, inside: bool) -> Kind | None:
    if bare in SCALARS:
        return Kind({"type": SCALARS[bare]}, {int: int, float: float}.get(bare) if inside else None)
    if bare in (bytes, bytearray, memoryview):
        return Kind(BYTES, _unquoted if inside else None)
    if bare in OF_DATES:
        form, load = OF_DATES[bare]
        return Kind({"type": "string", "format": form}, load)
    if bare is Decimal:
        either = {"anyOf": [{"type": "number"}, DECIMAL]}
        return Kind(either if inside else DECIMAL, _decimal)
    if origin is Literal:
        members = {to_json(arg): arg for arg in get_args(bare)}
        return Kind(_enumeration([*members]), members.__getitem__ if any(map(_is_member, members.values())) else None)
    if not isinstance(bare, type):
        return None
    if issubclass(bare, Enum):
        values = [member.value for member in bare]
        if not all(isinstance(value, (str, int, float, bool)) for value in values):
            raise UnderivableError(f"the values of {bare.__name__} are not strings or numbers")
        return Kind(_enumeration([*map(to_json, values)]), bare)
    if issubclass(bare, np.generic):
        try:
            name = triton_name(bare)
        except ValueError as error:
            raise UnderivableError(f"{_named(bare)} has no data type of the server") from error
        if name == "BYTES":
            return Kind(BYTES, _unquoted if inside else None)
        return Kind({"type": NUMBERS_OF_KIND[np.dtype(bare).kind], "dtype": name}, bare)
    if is_table(bare):
        return Kind({"type": "array", "items": {"type": "object"}}, table_of)
    if bare.__module__ == "PIL.Image" and bare.__name__ == "Image":
        return Kind(IMAGE, (lambda value: image_of(_unquoted(value))) if inside else image_of)
    return None


def _is_member(value: Any) -> bool:
    return isinstance(value, Enum)


def _enumeration(values: list[Any]) -> Schema:
    kinds = {type(value) for value in values}
    (kind,) = kinds if len(kinds) == 1 else (None,)
    return {**({"type": SCALARS[kind]} if kind in SCALARS else {}), "enum": values}


def _array(bare: Any, origin: Any, args: Sequence[Any], inside: bool) -> Kind | None:
    if hasattr(bare, "dim_str") and hasattr(bare, "dtypes"):  # of jaxtyping
        kind = _checked(_of_jaxtyping(bare), inside)
        return _of_tensor(kind) if is_tensor(bare.array_type) else kind
    if is_tensor(origin):
        return _of_tensor(_checked({"type": "array", "dtype": None, "shape": None}, inside))
    if origin is not np.ndarray:
        return None
    dtype = get_args(args[1])[0] if len(args) > 1 and get_args(args[1]) else Any
    concrete = isinstance(dtype, type) and issubclass(dtype, np.generic) and not dtype.__subclasses__()
    sizes = get_args(args[0]) if args else ()
    shape = [-1] * len(sizes) if sizes and ... not in sizes and get_origin(args[0]) is tuple else None
    try:
        name = triton_name(dtype) if concrete else None
    except ValueError as error:
        raise UnderivableError(f"{_named(bare)} has no data type of the server") from error
    return _checked({"type": "array", "dtype": name, "shape": shape}, inside)


def _checked(schema: Schema, inside: bool) -> Kind:
    if not inside:
        return Kind(schema)
    if schema["dtype"] is None:
        raise UnderivableError("the dtype of an array in a record is unknown; write NDArray[np.float32]")
    dtype = "S" if schema["dtype"] == "BYTES" else np.dtype(_numpy(schema["dtype"]))
    plain = schema if schema["shape"] is not None else {"type": "array"}
    return Kind(plain, lambda value: np.asarray(value, dtype))


def _of_tensor(kind: Kind) -> Kind:
    load = kind.load
    return Kind(kind.schema, lambda value: tensor_of_array(value if load is None else load(value)))


def _numpy(name: str) -> str:
    return name.lower().replace("fp", "float")


def _of_jaxtyping(bare: Any) -> Schema:
    if bare.array_type not in (np.ndarray, Any) and not is_tensor(bare.array_type):
        raise UnderivableError(f"{_named(bare)} is no NumPy array and no tensor of PyTorch, which callables get")
    names = set()
    for each in bare.dtypes if isinstance(bare.dtypes, (list, tuple)) else ():
        with suppress(ValueError):  # the server does not know it
            names.add(triton_name(str(each)))
    sizes: list[int] = []
    is_known = True
    for token in bare.dim_str.split():
        size = token.lstrip("#?").rpartition("=")[2]
        if token == "..." or "*" in token:
            is_known = False  # any number of dimensions
        sizes.append(int(size) if size.isdigit() else -1)
    return {"type": "array", "dtype": names.pop() if len(names) == 1 else None, "shape": sizes if is_known else None}


def _constraints(schema: Schema, metadata: Sequence[Any]) -> Schema:
    """The keywords of ``Annotated``: texts, and the constraints of annotated-types and of pydantic."""
    found: Schema = {}
    sized = "Items" if schema.get("type") == "array" else "Length"
    keywords = {**KEYWORDS, "min_length": f"min{sized}", "max_length": f"max{sized}"}
    for each in _flat(metadata):
        if isinstance(each, str):
            found.setdefault("description", each)
        for attribute, keyword in keywords.items():
            value = getattr(each, attribute, None)
            if value is not None and not callable(value) and not isinstance(each, str):
                found[keyword] = getattr(value, "pattern", value)
    return {key: to_json(value) for key, value in found.items()}


def _flat(metadata: Sequence[Any]) -> Iterator[Any]:
    for each in metadata:
        yield each
        inner = getattr(each, "metadata", None)
        yield from inner if isinstance(inner, (list, tuple)) else ()


def default_of(value: Any) -> Schema:
    """The keyword for a default; none if JSON cannot express it, or if it is None."""
    try:
        default = to_json(value)
        json.dumps(default, allow_nan=False)
    except (TypeError, ValueError):
        return {}
    return {} if value is None else {"default": default}


def _loaded(kind: Kind, value: Any) -> Any:
    return value if kind.load is None else kind.load(value)


def _unquoted(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _decimal(value: Any) -> Decimal:
    try:
        return Decimal(str(value))
    except InvalidOperation as error:
        raise ValueError("not a decimal number") from error


def _named(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
