"""Tensors of PyTorch, tables of pandas and images of Pillow; none of them need be installed."""

from __future__ import annotations

import io
import sys
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from pytriton.signature.records import fields_of, is_record

__all__ = [
    "has_tensors",
    "host_array",
    "image_of",
    "is_table",
    "is_tensor",
    "records_of",
    "table_of",
    "tensor_of_array",
]


def is_tensor(kind: Any) -> bool:
    """Whether it is the class of PyTorch's tensors."""
    return isinstance(kind, type) and kind.__module__ == "torch" and kind.__name__ == "Tensor"


def has_tensors(annotation: Any) -> bool:
    """Whether a class of PyTorch's tensors is part of an annotation, or of a field of a record."""
    if is_tensor(annotation) or is_tensor(getattr(annotation, "array_type", None)):  # jaxtyping's
        return True
    if is_record(annotation) and not hasattr(annotation, "model_fields"):
        return any(has_tensors(field.annotation) for field in fields_of(annotation))
    return any(map(has_tensors, get_args(annotation)))


def tensor_of_array(array: NDArray[Any]) -> Any:
    """A tensor in the memory of the CPU, without a copy if that memory may be written."""
    return sys.modules["torch"].from_numpy(array if array.flags.writeable else array.copy())


def host_array(value: Any) -> Any:
    """Another library's tensor as an array of NumPy, without a copy if it is in the memory of the CPU.

    Tensors of PyTorch may be in that of a GPU, and may need a gradient. NumPy has no bfloat16: it becomes float32.
    Other values are returned as they are.
    """
    if isinstance(value, (np.ndarray, np.generic)) or not hasattr(value, "__dlpack__"):
        return value
    if any(map(is_tensor, type(value).__mro__)):
        value = value.detach().cpu()
        value = value.float() if "bfloat16" in str(value.dtype) else value
    return np.from_dlpack(value)


def is_table(kind: Any) -> bool:
    """Whether it is the class of pandas' tables."""
    return isinstance(kind, type) and kind.__module__.split(".")[0] == "pandas" and kind.__name__ == "DataFrame"


def table_of(records: list[dict[str, Any]]) -> Any:
    """A table with a row for each record."""
    return sys.modules["pandas"].DataFrame(records)


def records_of(table: Any) -> list[dict[str, Any]]:
    """A record for each row of a table, without its index; None for what is missing."""
    rows: list[dict[Any, Any]] = table.astype(object).where(table.notna(), None).to_dict(orient="records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def image_of(data: bytes) -> Any:
    """The image in a file, read by Pillow, which is imported; ValueError if it is none, or has too many pixels."""
    file = io.BytesIO(data)
    pillow = sys.modules["PIL.Image"]
    try:
        image = pillow.open(file)
        most = pillow.MAX_IMAGE_PIXELS  # beyond which Pillow only warns
        if most is not None and image.width * image.height > most:
            raise ValueError(f"it has {image.width} x {image.height} pixels, and may have {most}")
        image.load()
    except Exception as error:  # of any class, as the file may be anything
        reason = str(error).replace(f" file {file!r}", "")  # whose address says nothing
        raise ValueError(f"not a readable image: {reason}") from error
    return image
