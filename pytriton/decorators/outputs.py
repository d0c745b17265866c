"""What a decorated function returns, in the form that the decorators above it expect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytriton.exceptions import PyTritonValidationError
from pytriton.worker.context import get_model_config

if TYPE_CHECKING:
    from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["InferenceResult", "InferenceResults", "batched_outputs", "convert_output"]

InferenceResult = dict[str, NDArray[Any]]
InferenceResults = list[InferenceResult]


def convert_output(
    outputs: Any, wrapped: Any = None, instance: Any = None, model_config: TritonModelConfig | None = None
) -> InferenceResult:
    """Give the outputs of a callable their names.

    Args:
        outputs: A mapping from name to array, or a list or tuple in the order of the model's outputs.
        wrapped: The callable, to find its model's configuration.
        instance: The object whose method it is, or None.
        model_config: Configuration of the model; None looks it up, which only a list or tuple needs.

    Returns:
        A new dict; the arrays are not copied.

    Raises:
        PyTritonValidationError: Another type, or not one array per output.
    """
    if isinstance(outputs, (dict, Mapping)):  # dict first: a check against an ABC alone costs more
        return dict(outputs)
    if not isinstance(outputs, (list, tuple)):
        raise PyTritonValidationError(
            f"a callable returned a {type(outputs).__name__}; return a dict from output name to array, or a list or "
            "tuple in the order of the model's outputs"
        )
    config = get_model_config(wrapped, instance) if model_config is None else model_config
    names = [spec.name for spec in config.outputs or ()]
    if len(outputs) != len(names):
        raise PyTritonValidationError(
            f"a callable returned {len(outputs)} outputs, model {config.model_name!r} has {len(names)}: {names}; "
            "return one array for each"
        )
    return dict(zip(names, outputs, strict=True))


def batched_outputs(outputs: Any, rows: int, wrapped: Any, instance: Any) -> InferenceResult:
    """Give the outputs of a callable their names, and check that each has one row per input row.

    Args:
        outputs: As for :func:`convert_output`.
        rows: Rows that the callable was called with.
        wrapped: The callable.
        instance: The object whose method it is, or None.

    Returns:
        Name to array of shape ``(rows, ...)``.

    Raises:
        PyTritonValidationError: As :func:`convert_output`; or an output is no array or has another number of rows. It
            is a ``ValueError``.
    """
    named = convert_output(outputs, wrapped, instance)
    for name, array in named.items():
        if not isinstance(array, np.ndarray):
            raise PyTritonValidationError(f"output {name!r} is a {type(array).__name__}; return a numpy.ndarray")
        if array.ndim == 0:
            raise PyTritonValidationError(f"output {name!r} is a 0-d array, expected {rows} rows on its first axis")
        if array.shape[0] != rows:
            raise PyTritonValidationError(
                f"output {name!r} has {array.shape[0]} rows, expected {rows}; return one per input row"
            )
    return named
