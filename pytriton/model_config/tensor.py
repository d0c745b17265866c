"""An input or output of a model, as given to ``bind``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import DTypeLike

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config.dtypes import scalar_type

__all__ = ["Tensor", "checked_shape"]


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

    Raises:
        PyTritonBadParameterError: The shape or the dtype is not possible.
    """

    shape: tuple[int, ...]
    dtype: DTypeLike
    name: str | None = None
    optional: bool | None = False

    def __post_init__(self) -> None:
        self.shape = checked_shape(self.shape)
        scalar = scalar_type(self.dtype)
        self.dtype = self.dtype if isinstance(self.dtype, type) else scalar
        self.optional = bool(self.optional)


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
