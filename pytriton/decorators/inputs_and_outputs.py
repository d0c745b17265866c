"""Take requests and arrays from a call's arguments, and name and check the arrays that it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytriton.exceptions import PyTritonRuntimeError, PyTritonValidationError
from pytriton.proxy.types import Request
from pytriton.worker.context import get_model_config

if TYPE_CHECKING:
    from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = [
    "InferenceRequest",
    "InferenceRequests",
    "InferenceResult",
    "InferenceResults",
    "InputNames",
    "batched_inputs",
    "batched_outputs",
    "convert_output",
    "get_inference_request_batch_size",
    "replaced",
    "requests_in",
    "row_count",
    "tensors",
]

InputNames = list[str]
InferenceRequest = Request
InferenceRequests = list[InferenceRequest]
InferenceResult = dict[str, NDArray[Any]]
InferenceResults = list[InferenceResult]


def requests_in(args: Sequence[Any], decorator: str) -> Sequence[Any]:
    """The list of requests among the positional arguments of a call.

    Args:
        args: Positional arguments; the list comes first.
        decorator: Name of the decorator, for the message.

    Raises:
        PyTritonRuntimeError: There is no list.
        PyTritonValidationError: It is empty.
    """
    if not args or not isinstance(args[0], (list, tuple)):
        raise PyTritonRuntimeError(
            f"@{decorator} needs the list of requests as its first positional argument; put it above @batch or @sample"
        )
    requests: Sequence[Any] = args[0]
    if not requests:
        raise PyTritonValidationError(f"@{decorator} got an empty list; pass at least one request")
    return requests


def tensors(request: Any) -> Mapping[str, Any]:
    """Inputs of a request: any mapping from name to array.

    Raises:
        PyTritonValidationError: It is not a mapping.
    """
    if isinstance(request, (dict, Mapping)):  # dict first: a check against an ABC alone is slower
        return request
    raise PyTritonValidationError(
        f"a request is a {type(request).__name__}; pass Request objects or mappings from input name to array"
    )


def replaced(request: Any, inputs: Mapping[str, Any]) -> Any:
    """A copy of a request with some inputs added or replaced."""
    data = {**tensors(request), **inputs}
    if not isinstance(request, Request):
        return data
    return request.with_data(data)


def row_count(name: str, array: Any) -> int:
    """Size of the batch axis of an input.

    Raises:
        PyTritonValidationError: It is not an array, or has no axis.
    """
    if not isinstance(array, np.ndarray):
        raise PyTritonValidationError(f"input {name!r} is a {type(array).__name__}; pass a numpy.ndarray")
    if array.ndim == 0:
        raise PyTritonValidationError(f"input {name!r} is a 0-d array; pass one whose first axis is the batch")
    return len(array)


def get_inference_request_batch_size(inference_request: Any) -> int:
    """Rows of a request: the first dimension of its first input.

    Args:
        inference_request: A Request, or any mapping from input name to array of shape ``(rows, ...)``.

    Raises:
        PyTritonValidationError: It is not a mapping, has no inputs, or its first input has no batch axis.
    """
    for name, array in tensors(inference_request).items():
        return row_count(name, array)
    raise PyTritonValidationError("a request has no inputs, so its batch size is unknown; send at least one input")


def batched_inputs(kwargs: Mapping[str, Any], decorator: str) -> tuple[dict[str, NDArray[Any]], int]:
    """The inputs among the keyword arguments of a function under ``@batch``.

    Args:
        kwargs: Keyword arguments. Those that are not arrays, such as ``triton_context`` or the values of
            ``@first_value``, are not inputs.
        decorator: Name of the decorator, for the message.

    Returns:
        Name to array of shape ``(rows, ...)``, and the number of rows.

    Raises:
        PyTritonRuntimeError: There is no input, or the arrays differ in rows.
    """
    inputs = {name: value for name, value in kwargs.items() if isinstance(value, np.ndarray) and value.ndim > 0}
    if not inputs:
        raise PyTritonRuntimeError(f"@{decorator} got no keyword arrays; put it below @batch")
    sizes = {name: array.shape[0] for name, array in inputs.items()}
    if len(set(sizes.values())) > 1:
        raise PyTritonRuntimeError(
            f"@{decorator} got inputs of different batch sizes {sizes}; put @first_value below it"
        )
    return inputs, next(iter(sizes.values()))


def convert_output(
    outputs: Any, wrapped: Any = None, instance: Any = None, model_config: TritonModelConfig | None = None
) -> InferenceResult:
    """Name the outputs of a callable.

    Args:
        outputs: A mapping from name to array, or a list or tuple in the order of the model's outputs.
        wrapped: The callable, to find its model's configuration.
        instance: The object whose method it is, or None.
        model_config: Configuration of the model; None looks it up, if ``outputs`` is a list or tuple.

    Returns:
        A new dict; the arrays are not copied.

    Raises:
        PyTritonValidationError: Another type, or not one array per output.
    """
    if isinstance(outputs, (dict, Mapping)):  # dict first: a check against an ABC alone is slower
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
    """Name the outputs of a callable, and check that each has one row per input row.

    Args:
        outputs: As for :func:`convert_output`.
        rows: Rows that the callable was called with.
        instance: The object whose method it is, or None.

    Returns:
        Name to array of shape ``(rows, ...)``.

    Raises:
        PyTritonValidationError: As :func:`convert_output`; or an output is not an array, or has another number of
            rows.
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
