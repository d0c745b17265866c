"""An input or output of a model, as given to ``bind``."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from numpy.typing import DTypeLike

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config.dtypes import scalar_type

__all__ = ["Tensor", "checked_format", "checked_labels", "checked_shape"]

FORMATS = ("NCHW", "NHWC")


@dataclass(unsafe_hash=True)  # as programs put it into sets and dicts
class Tensor:
    """An input or output of a model.

    Args:
        shape: Dimensions without the batch axis, as a tuple or list; -1 is any size. ``()``, for models with batching
            only, is one value per row: callables see shape ``(batch,)``, and clients exchange ``(batch, 1)``, because
            the server's configuration knows no tensor without dimensions.
        dtype: Anything that :func:`pytriton.model_config.dtypes.scalar_type` takes. Types are kept as they are given,
            names and ``numpy.dtype`` objects become the NumPy scalar type. ``bytes`` and ``object`` are the same to the
            server: callables get object arrays of ``bytes``.
        name: Name that clients and callables use; None is INPUT_1, INPUT_2, ... or OUTPUT_1, ... by position.
        optional: Clients may leave the tensor out; for inputs only.
        labels: Names of the classes that an output has scores for, in their order; or the path of a text file with one
            on each line, which is read at once. Clients that ask for an output's best classes get them.
        format: ``"NCHW"`` or ``"NHWC"`` says which way an image lies in an input with three dimensions (the batch axis,
            N, is not among them). The server passes it on to clients, and does nothing else with it.

    Raises:
        PyTritonBadParameterError: The shape, the dtype, the labels or the format are not possible.
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


def checked_labels(labels: Sequence[str] | str | os.PathLike[str] | None) -> tuple[str, ...] | None:
    """Labels, or those in a file, as a tuple; None if there are none.

    Raises:
        PyTritonBadParameterError: They are not texts of one line each, or the file cannot be read.
    """
    if labels is None:
        return None
    if isinstance(labels, (str, os.PathLike)):
        try:
            text = Path(labels).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise PyTritonBadParameterError(
                f"labels are to be read from {os.fspath(labels)!r}, which fails: {error}"
            ) from error
        labels = text.removesuffix("\n").split("\n") if text else []
    if not isinstance(labels, Sequence) or not all(isinstance(label, str) for label in labels):
        raise PyTritonBadParameterError(f"labels must be a list of texts, or the path of a file, got {labels!r}")
    if not labels:
        raise PyTritonBadParameterError("labels must not be empty; leave them out if there are none")
    for label in labels:
        if "\n" in label or "\r" in label:
            raise PyTritonBadParameterError(f"label {label!r} has several lines; the server takes one line for each")
    return tuple(labels)


def checked_format(value: str | None) -> str | None:
    """``NCHW``, ``NHWC`` or None; the server's names for them are understood too.

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
