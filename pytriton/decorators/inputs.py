"""What reaches a decorated function: a list of requests, or keyword arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.exceptions import PyTritonRuntimeError, PyTritonValidationError
from pytriton.proxy.types import Request

__all__ = [
    "InferenceRequest",
    "InferenceRequests",
    "InputNames",
    "batched_inputs",
    "get_inference_request_batch_size",
    "replaced",
    "requests_in",
    "row_count",
    "tensors",
]

InputNames = list[str]
InferenceRequest = Request
InferenceRequests = list[InferenceRequest]
Arrays = dict[str, NDArray[Any]]


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
    """Inputs of a request, which may be any mapping from name to array.

    Raises:
        PyTritonValidationError: It is not a mapping.
    """
    if isinstance(request, (dict, Mapping)):  # dict first: a check against an ABC alone costs more
        return request
    raise PyTritonValidationError(
        f"a request is a {type(request).__name__}; pass Request objects or mappings from input name to array"
    )


def replaced(request: Any, inputs: Mapping[str, Any]) -> Any:
    """A request with some inputs added or replaced; the one given stays as it is."""
    data = {**tensors(request), **inputs}
    if not isinstance(request, Request):
        return data
    return request.with_data(data)


def row_count(name: str, array: Any) -> int:
    """Size of the batch axis of an input.

    Raises:
        PyTritonValidationError: It is no array, or has no axis.
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
        PyTritonValidationError: It is no mapping, has no inputs, or its first input has no batch axis.
    """
    for name, array in tensors(inference_request).items():
        return row_count(name, array)
    raise PyTritonValidationError("a request has no inputs, so its batch size is unknown; send at least one input")


def batched_inputs(kwargs: Mapping[str, Any], decorator: str) -> tuple[Arrays, int]:
    """The inputs among the keyword arguments of a function under ``@batch``.

    Args:
        kwargs: Keyword arguments. Those that are no arrays, such as ``triton_context`` or what ``@first_value`` made
            of an input, are no inputs.
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
