"""What values are in JSON."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import numpy as np

from pytriton.signature.foreign import host_array, is_table, records_of

__all__ = ["image_file", "is_image", "to_json"]


def to_json(value: Any) -> Any:
    """A value as :mod:`json` takes it: dataclasses, models of pydantic, enumerations, bytes (as base64), arrays, sets.

    Raises:
        TypeError: JSON cannot express a part of it.
    """
    if type(value) in (str, int, float, bool, type(None)):
        return value
    if isinstance(value, Enum):
        return to_json(value.value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, (np.generic, np.ndarray)):
        return to_json(value.tolist())
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, Mapping):
        return {_key(name): to_json(item) for name, item in value.items()}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "_asdict"):
        return to_json(value._asdict())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json(item) for item in value]
    if isinstance(value, (str, int, float)):
        return value
    if is_image(value):
        return to_json(image_file(value))
    if is_table(type(value)):
        return to_json(records_of(value))
    if hasattr(value, "__dlpack__"):
        return to_json(host_array(value))
    raise TypeError(f"an instance of {type(value).__name__}, which JSON cannot express")


def _key(name: Any) -> str:
    key = to_json(name)
    if not isinstance(key, str):
        raise TypeError(f"{name!r} cannot be a key of a JSON object")
    return key


def is_image(value: Any) -> bool:
    """Whether it is an image of Pillow; Pillow need not be installed."""
    return any(each.__module__ == "PIL.Image" for each in type(value).__mro__)


def image_file(image: Any) -> bytes:
    """An image of Pillow as a PNG file."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
