"""Checks of what an inference callable returned, before it is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytriton.proxy.types import RequestBatch

if TYPE_CHECKING:
    from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

__all__ = ["TritonResultsValidator"]

_SENDABLE_KINDS = "biufOSU"
_STRING_KINDS = "OSU"


class TritonResultsValidator:
    """Checks the responses of one model.

    Always checked are the types, and that an output of a batching model has one row per row of its request: the server
    would send a malformed response. Which of the declared outputs are present is never checked. What is wrong is a
    ValueError that names the request and the output, what was got and what was expected.

    Args:
        strict: Also refuse undeclared outputs, dtypes that are no subtype of the declared one, and other shapes.
            Otherwise undeclared outputs are not sent, and the worker casts to the declared dtype.
        encodes_text: Whether object arrays of ``str`` pass, because what sends them encodes them.
    """

    def __init__(self, triton_model_config: TritonModelConfig, strict: bool, *, encodes_text: bool = False) -> None:
        self._specs = {spec.name: spec for spec in triton_model_config.outputs or ()}
        self._batching = triton_model_config.batching
        self._strict = strict
        self._objects = (bytes, str) if encodes_text else bytes

    def validate_responses(self, requests: Sequence[Any], responses: Any) -> None:
        """Check what one call returned or yielded.

        Args:
            requests: The requests of the call: Request objects or other mappings from input name to array.
            responses: A list with one mapping from output name to array per request, in their order. An exception in
                place of a mapping fails that request alone, and passes.
        """
        for index, rows in enumerate(self.validate_list(requests, responses)):
            if not isinstance(responses[index], BaseException):  # asyncio.gather() may give a CancelledError
                where = f"response {index}"
                self.validate_mapping(responses[index], where)
                for name, array in responses[index].items():
                    self.validate_output(name, array, rows, where)

    def validate_list(self, requests: Sequence[Any], responses: Any) -> Sequence[int | None]:
        """Check that there is one response per request, whatever each is.

        Returns:
            Rows of each request; None where the inputs do not tell, or there is no batch axis.
        """
        if not isinstance(responses, list):
            raise ValueError(
                f"a callable returned a {_type_name(responses)}; return a list with one dict from output name to "
                "array per request"
            )
        if len(responses) != len(requests):
            raise ValueError(
                f"a callable returned {len(responses)} responses to {len(requests)} requests; return one per request"
            )
        return _rows(requests) if self._batching else [None] * len(requests)

    def validate_mapping(self, outputs: Any, where: str) -> None:
        """Check that some outputs are a mapping, whatever it holds.

        Args:
            outputs: A response, or the outputs of a whole batch.
            where: Names it in errors.
        """
        if not isinstance(outputs, Mapping):
            raise ValueError(f"{where} is a {_type_name(outputs)}; return a dict from output name to array")

    def validate_output(self, name: Any, array: Any, rows: int | None, where: str) -> None:
        """Check one output.

        Args:
            array: Of shape ``(rows, ...)`` if the model has a batch axis.
            rows: None if that is not known, or there is no batch axis.
            where: Names the response in errors.
        """
        if not isinstance(name, str):
            raise ValueError(f"{where} has the key {name!r}, a {_type_name(name)}; name each output with a str")
        output = f"output {name!r} of {where}"
        _check_type(array, output, self._objects)
        spec = self._specs.get(name)
        if spec is not None:
            if self._batching:
                _check_rows(array, rows, output)
            if self._strict:
                _check_dtype(array, spec, output)
                _check_shape(array.shape, (-1, *spec.shape) if self._batching else tuple(spec.shape), output)
        elif self._strict:
            raise ValueError(f"{output} is not declared; the model's outputs are {list(self._specs)}")


def _check_type(array: Any, output: str, objects: type | tuple[type, ...]) -> None:
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{output} is a {_type_name(array)}; return a numpy.ndarray")
    if array.dtype.kind not in _SENDABLE_KINDS:
        raise ValueError(f"{output} has dtype {array.dtype}; return booleans, integers, floats, bytes or text")
    if array.dtype.kind == "O" and array.size and not isinstance(array.flat[0], objects):
        raise ValueError(
            f"{output} is an object array of {_type_name(array.flat[0])}; object arrays must hold bytes: encode text, "
            "and give numbers a numeric dtype"
        )


def _check_rows(array: NDArray[Any], rows: int | None, output: str) -> None:
    if array.ndim == 0:
        raise ValueError(f"{output} is a 0-d array; the first axis must be the batch")
    if rows is not None and array.shape[0] != rows:
        raise ValueError(f"{output} has {array.shape[0]} rows, expected {rows}; return one per input row")


def _check_dtype(array: NDArray[Any], spec: TensorSpec, output: str) -> None:
    declared = np.dtype(spec.dtype)
    if declared.kind in _STRING_KINDS:
        matches = array.dtype.kind in _STRING_KINDS
    else:
        matches = array.dtype == declared or np.issubdtype(array.dtype, declared.type)
    if not matches:
        wanted = "bytes" if declared.kind in _STRING_KINDS else declared
        raise ValueError(f"{output} has dtype {array.dtype}, expected {wanted}; convert it with astype")


def _check_shape(shape: tuple[int, ...], declared: tuple[int, ...], output: str) -> None:
    if len(shape) != len(declared) or any(want not in (-1, size) for size, want in zip(shape, declared, strict=True)):
        raise ValueError(f"{output} has shape {shape}, expected {declared}; -1 is any size")


def _rows(requests: Sequence[Any]) -> list[int | None]:
    """Rows of each request; None where the inputs do not tell."""
    if isinstance(requests, RequestBatch):
        return list(requests.rows)
    return [_rows_of(request) for request in requests]


def _rows_of(inputs: Mapping[str, Any]) -> int | None:
    first = next(iter(inputs.values()), None)
    return len(first) if isinstance(first, np.ndarray) and first.ndim else None


def _type_name(value: object) -> str:
    return type(value).__name__
