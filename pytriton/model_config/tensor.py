"""The inputs and outputs of a model: :class:`Tensor` as given to ``bind``, :class:`TensorSpec` with its final name."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config.dtypes import from_triton_name, scalar_type, triton_name

__all__ = ["Tensor", "TensorSpec", "checked_format", "checked_labels", "checked_shape", "name_tensors"]

FORMATS = ("NCHW", "NHWC")


@dataclass(unsafe_hash=True)  # programs put tensors into sets and dicts
class Tensor:
    """An input or output of a model, as given to ``bind``.

    Args:
        shape: Dimensions without the batch axis, as a tuple or list; -1 is any size. ``()``, for models with batching
            only, is one value per row: callables see shape ``(batch,)``, and clients exchange ``(batch, 1)``, because
            the server's configuration has no tensor without dimensions.
        dtype: Anything that :func:`pytriton.model_config.dtypes.scalar_type` takes. A type stays as it is; a name or
            ``numpy.dtype`` becomes the NumPy scalar type. ``bytes`` and ``object`` are the same to the server:
            callables get object arrays of ``bytes``.
        name: Name that clients and callables use; None is INPUT_1, INPUT_2, ... or OUTPUT_1, ... by position.
        optional: Clients may leave the tensor out; for inputs only.
        labels: Names of the classes for which an output has scores, in order; or the path of a text file with one name
            per line, which is read immediately. Clients that request the best classes of an output get these names.
        format: Axis order of an image in an input with three dimensions, without the batch axis: ``"NCHW"`` or
            ``"NHWC"``. The server tells it to clients, and does not use it.

    Raises:
        PyTritonBadParameterError: The shape, dtype, labels or format is not possible.
    """

    shape: tuple[int, ...]
    dtype: DTypeLike
    name: str | None = None
    optional: bool | None = False
    labels: Sequence[str] | str | os.PathLike[str] | None = None
    format: str | None = None

    def __post_init__(self) -> None:
        self.shape = checked_shape(self.shape)
        scalar = scalar_type(self.dtype)
        self.dtype = self.dtype if isinstance(self.dtype, type) else scalar
        self.optional = bool(self.optional)
        self.labels = checked_labels(self.labels)
        self.format = checked_format(self.format)


@dataclass
class TensorSpec:
    """An input or output of a served model.

    Args:
        shape: Dimensions without the batch axis; -1 is any size. ``()`` is one value per row: callables see
            ``(batch,)``, clients exchange ``(batch, 1)``.
        dtype: NumPy scalar type; for BYTES tensors ``np.bytes_``, also when given as ``object``.
        optional: Clients may leave it out.
        format: ``NCHW`` or ``NHWC``, of an input that is an image; None is not known.
        label_filename: File with the labels of an output's classes, in the model's folder; empty is none.
        labels: Content of that file; None if it is not known, because servers only tell its name.

    Raises:
        PyTritonBadParameterError: The shape, dtype, format or labels is not possible.
    """

    name: str
    shape: tuple[int, ...]
    dtype: type[np.generic]
    optional: bool = False
    format: str | None = None
    label_filename: str = ""
    labels: Sequence[str] | None = None

    def __post_init__(self) -> None:
        self.shape = checked_shape(self.shape)
        self.dtype = from_triton_name(triton_name(self.dtype))
        self.format = checked_format(self.format)
        self.labels = checked_labels(self.labels)


def name_tensors(tensors: Sequence[Tensor], prefix: str) -> list[TensorSpec]:
    """Give each tensor without a name one by its position, counted from 1 over all tensors.

    Args:
        tensors: The inputs or the outputs of a model.
        prefix: ``INPUT`` or ``OUTPUT``; the third tensor becomes ``INPUT_3``.
    """
    return [
        TensorSpec(
            tensor.name or f"{prefix}_{position}",
            tensor.shape,
            scalar_type(tensor.dtype),
            bool(tensor.optional),
            tensor.format,
            f"labels_{position}.txt" if tensor.labels else "",
            checked_labels(tensor.labels),
        )
        for position, tensor in enumerate(tensors, 1)
    ]


def checked_labels(labels: Sequence[str] | str | os.PathLike[str] | None) -> tuple[str, ...] | None:
    """Labels, or the lines of a file, as a tuple; None if there are none.

    Raises:
        PyTritonBadParameterError: A label is not a text of one line, or the file cannot be read.
    """
    if labels is None:
        return None
    if isinstance(labels, (str, os.PathLike)):
        try:
            text = Path(labels).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise PyTritonBadParameterError(f"cannot read labels from {os.fspath(labels)!r}: {error}") from error
        labels = text.removesuffix("\n").split("\n") if text else []
    if not isinstance(labels, Sequence) or not all(isinstance(label, str) for label in labels):
        raise PyTritonBadParameterError(f"labels must be a list of texts, or the path of a file, got {labels!r}")
    if not labels:
        raise PyTritonBadParameterError("labels must not be empty; leave them out if there are none")
    for label in labels:
        if "\n" in label or "\r" in label:
            raise PyTritonBadParameterError(f"label {label!r} has several lines; the server takes one line per label")
    return tuple(labels)


def checked_format(value: str | None) -> str | None:
    """``NCHW``, ``NHWC`` or None; also takes the server's names, such as ``FORMAT_NCHW``.

    Raises:
        PyTritonBadParameterError: It is something else.
    """
    if value is None or value == "FORMAT_NONE":
        return None
    name = value.removeprefix("FORMAT_") if isinstance(value, str) else value
    if name not in FORMATS:
        raise PyTritonBadParameterError(f"format must be 'NCHW', 'NHWC' or None, got {value!r}")
    return name


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape as a tuple of ``int``.

    Raises:
        PyTritonBadParameterError: It is not a tuple or list, or a dimension is neither -1 nor a positive integer.
    """
    if not isinstance(shape, (tuple, list)):
        raise PyTritonBadParameterError(f"shape must be a tuple such as (-1,) or (3, 224, 224), got {shape!r}")
    return tuple(_checked_dimension(dimension, shape) for dimension in shape)


def _checked_dimension(dimension: object, shape: Sequence[int]) -> int:
    message = f"shape {shape!r}: each dimension must be an integer above 0, or -1 for any size; got {dimension!r}"
    if isinstance(dimension, bool):
        raise PyTritonBadParameterError(message)
    try:
        size = operator.index(dimension)  # type: ignore[arg-type]  # whether it is an integer is the question
    except TypeError as error:
        raise PyTritonBadParameterError(message) from error
    if size < -1 or size == 0:
        raise PyTritonBadParameterError(message)
    return size
