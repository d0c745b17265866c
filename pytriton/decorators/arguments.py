"""Decorators that add or replace arguments: absent inputs, single values, the requests, the model's context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytriton.constants import TRITON_CONTEXT_ATTRIBUTE, TRITON_CONTEXT_FIELD_NAME
from pytriton.decorators.inputs_and_outputs import get_inference_request_batch_size, replaced, requests_in, tensors
from pytriton.decorators.signatures import Change, Decorator, Wrapped, adding_decorator, changing_decorator
from pytriton.exceptions import PyTritonBadParameterError, PyTritonRuntimeError
from pytriton.proxy.types import RequestBatch
from pytriton.worker.context import get_model_config, get_triton_context

if TYPE_CHECKING:
    from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["fill_optionals", "first_value", "triton_context", "with_requests"]

Arrays = dict[str, NDArray[Any]]
_RESERVED_NAMES = {TRITON_CONTEXT_ATTRIBUTE, TRITON_CONTEXT_FIELD_NAME}
_BYTES_KINDS = "SO"


def fill_optionals(**defaults: NDArray[Any]) -> Decorator:
    """Add absent inputs to requests. Goes above ``@batch``.

    Args:
        defaults: Input name to array of the input's shape, without batch axis, and dtype; bytes and object are the
            same. With batching the function gets it repeated for each row of the request, otherwise unchanged.
            Strings become object arrays, as those of clients.

    Raises:
        PyTritonBadParameterError: At the call: a default is for no input of the model, is not an array, or has another
            dtype or shape.
        PyTritonRuntimeError: At the call: there is no list of requests.
        PyTritonValidationError: At the call: the list is empty, the model is not bound, or a request has no input at
            all, so that its rows are unknown.
    """
    checked: TritonModelConfig | None = None

    @changing_decorator(Change(fills=tuple(defaults)))
    def filled(wrapped: Wrapped, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal checked
        requests = requests_in(args, "fill_optionals")
        config = get_model_config(wrapped, instance)
        if checked is not config:  # the check is slow, and depends on the model alone
            _check_defaults(defaults, config)
            checked = config
        return wrapped(_filled(requests, defaults, config.batching), *args[1:], **kwargs)

    return filled


def first_value(*keys: str, squeeze_single_values: bool = True, strict: bool = True) -> Decorator:
    """Replace inputs that have the same value in all rows by that value.

    Works on the keyword arrays below ``@batch``, and on each request of a list. Goes below ``@group_by_values``, which
    makes the values of a batch equal.

    Args:
        keys: Names of inputs of shape ``(rows, *shape)``; the function gets shape ``shape``. Absent ones are skipped.
        squeeze_single_values: If all dimensions of ``shape`` are 1, give the element: a NumPy scalar, or bytes.
        strict: Check that all rows are equal.

    Raises:
        PyTritonBadParameterError: At decoration: a key name is reserved.
        PyTritonRuntimeError: At the call: the model has no batching, an input has no rows, or, if ``strict``, rows that
            differ.
        PyTritonValidationError: At the call: the model is not bound.
    """
    reserved = _RESERVED_NAMES.intersection(keys)
    if reserved:
        names = ", ".join(map(repr, sorted(reserved)))
        raise PyTritonBadParameterError(
            f"@first_value got a reserved key name: {names} is not allowed; give names of the model's inputs"
        )

    def reduced(inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {key: _first(key, inputs[key], squeeze_single_values, strict) for key in keys if key in inputs}

    @changing_decorator(Change(reduces=keys))
    def with_first(wrapped: Wrapped, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        config = get_model_config(wrapped, instance)
        if not config.batching:
            raise PyTritonRuntimeError(f"@first_value needs a model with batching; {config.model_name!r} has none")
        if _is_below_batch(args, kwargs):
            return wrapped(*args, **{**kwargs, **reduced(kwargs)})
        requests = requests_in(args, "first_value")
        return wrapped([replaced(request, reduced(tensors(request))) for request in requests], *args[1:], **kwargs)

    return with_first


@adding_decorator("requests")
def with_requests(wrapped: Wrapped, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function with the list of requests as keyword argument ``requests`` too. Goes right above ``@batch``.

    A function below ``@batch`` or ``@sample`` gets parameters, ids and cancellation from them. Take inputs from the
    arrays: replacing an input of a request makes ``@batch`` join the arrays again.

    Raises:
        PyTritonRuntimeError: There is no list of requests.
        PyTritonValidationError: The list is empty.
    """
    return wrapped(*args, **{**kwargs, "requests": requests_in(args, "with_requests")})


@adding_decorator(TRITON_CONTEXT_FIELD_NAME, anywhere=True)
def triton_context(wrapped: Wrapped, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function with the :class:`TritonContext` of its model as keyword argument ``triton_context``.

    Works at any position of a stack of decorators. ``triton_context.model_configs[callable]`` is the configuration.

    Raises:
        PyTritonValidationError: The function is not bound to a model.
    """
    context = get_triton_context(wrapped, instance)
    return wrapped(*args, **{**kwargs, TRITON_CONTEXT_FIELD_NAME: context})


def _check_defaults(defaults: Mapping[str, Any], config: TritonModelConfig) -> None:
    specs = {spec.name: spec for spec in config.inputs or ()}
    for name, default in defaults.items():
        if name not in specs:
            raise PyTritonBadParameterError(
                f"@fill_optionals has a default for {name!r}; model {config.model_name!r} has inputs {list(specs)}"
            )
        if not isinstance(default, np.ndarray):
            raise PyTritonBadParameterError(
                f"the default of input {name!r} is a {type(default).__name__}; give a numpy.ndarray"
            )
        dtype, shape = np.dtype(specs[name].dtype), tuple(specs[name].shape)
        if default.dtype != dtype and not (default.dtype.kind in _BYTES_KINDS and dtype.kind in _BYTES_KINDS):
            raise PyTritonBadParameterError(
                f"the default of input {name!r} has dtype {default.dtype}, expected {dtype}"
            )
        if not _fits(default.shape, shape):
            raise PyTritonBadParameterError(
                f"the default of input {name!r} has shape {default.shape}, expected {shape}, without the batch axis"
            )


def _fits(shape: Sequence[int], declared: Sequence[int]) -> bool:
    return len(shape) == len(declared) and all(want in (-1, size) for size, want in zip(shape, declared, strict=True))


def _filled(requests: Sequence[Any], defaults: Arrays, batching: bool) -> Sequence[Any]:
    if isinstance(requests, RequestBatch):
        columns = requests.columns()
        if columns is not None:  # all have the same inputs, in whole-batch arrays: add whole-batch arrays
            requests.add(_missing(columns, defaults, sum(requests.rows)))
            return requests
    filled = []
    for request in requests:
        inputs = tensors(request)
        lacks = not inputs.keys() >= defaults.keys()
        rows = get_inference_request_batch_size(request) if lacks and batching else None
        filled.append(replaced(request, _missing(inputs, defaults, rows)) if lacks else request)
    return filled


def _missing(inputs: Mapping[str, Any], defaults: Arrays, rows: int | None) -> Arrays:
    """Defaults that ``inputs`` lack, for so many rows; None is without batch axis."""
    return {name: _copied(default, rows) for name, default in defaults.items() if name not in inputs}


def _copied(default: NDArray[Any], rows: int | None) -> NDArray[Any]:
    dtype = np.dtype(object) if default.dtype.kind in _BYTES_KINDS else default.dtype
    copied = np.empty(default.shape if rows is None else (rows, *default.shape), dtype)
    copied[...] = default
    return copied


def _is_below_batch(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    has_arrays = any(isinstance(value, np.ndarray) for value in kwargs.values())
    return has_arrays or not (args and isinstance(args[0], (list, tuple)))


def _first(name: str, array: Any, squeeze: bool, strict: bool) -> Any:
    if not isinstance(array, np.ndarray) or array.ndim == 0 or len(array) == 0:
        got = f"shape {array.shape}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
        raise PyTritonRuntimeError(f"@first_value needs at least one row of input {name!r}, got {got}")
    first = array[0]
    if strict and (array[1:] != first).any():
        raise PyTritonRuntimeError(
            f"@first_value got different values of input {name!r}; put @group_by_values({name!r}) above it, or use "
            "strict=False to take the first"
        )
    if squeeze and isinstance(first, np.ndarray) and first.size == 1:
        return first.flat[0]
    return first
