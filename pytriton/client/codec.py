"""Between the arrays of callers and the tensors of requests and responses, for one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.client.exceptions import (
    PyTritonClientInferenceServerError,
    PyTritonClientInputError,
    PyTritonClientValueError,
)
from pytriton.client.tensors import InferResponse, InputTensor, OutputRequest
from pytriton.model_config.dtypes import triton_name
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.signature.problems import ValueMismatchError
from pytriton.signature.schema import VALUES
from pytriton.signature.values import SignatureCodec

__all__ = ["Codec"]

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class _Input:
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    datatype: str
    optional: bool

    @classmethod
    def of(cls, spec: TensorSpec) -> _Input:
        # A tensor of shape () has one value per row, which clients exchange as one column.
        return cls(spec.name, spec.shape or (1,), np.dtype(spec.dtype), triton_name(spec.dtype), spec.optional)


class Codec:
    """Checks and encodes the inputs of one model, and decodes its outputs.

    Args:
        config: Description of the model. Everything that depends on it alone is computed here, once.

    Attributes:
        batching: Whether the model's tensors have a batch axis.
        decoupled: Whether the model gives any number of responses to a request.
        takes_values: Whether it is a function that is called with the Python values of one request.
        requested_outputs: All outputs of the model.
    """

    def __init__(self, config: TritonModelConfig) -> None:
        self.batching = config.max_batch_size > 0
        self.decoupled = config.decoupled
        self._model_name = config.model_name
        self._max_batch_size = config.max_batch_size
        self._inputs = {spec.name: _Input.of(spec) for spec in config.inputs or ()}
        self._required = {spec.name for spec in self._inputs.values() if not spec.optional}
        self._outputs = {spec.name: _array_dtype(spec) for spec in config.outputs or ()}
        self._typed = SignatureCodec.of(config)
        self.takes_values = self._typed is not None and self._typed.signature.passes == VALUES
        self.requested_outputs = [OutputRequest(name) for name in self._outputs]

    def has_input(self, name: str) -> bool:
        """Whether the model has an input of that name."""
        return name in self._inputs

    def by_name(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """Name positional inputs, in the order of the model's inputs; fewer are allowed.

        Raises:
            PyTritonClientInputError: There are more than the model has inputs.
        """
        if len(arrays) > len(self._inputs):
            raise PyTritonClientInputError(
                f"{len(arrays)} inputs were given, but model {self._model_name!r} has {self._listed_inputs()}"
            )
        return dict(zip(self._inputs, arrays, strict=False))

    def encode(self, arrays: Mapping[str, Any], *, sample: bool) -> list[InputTensor]:
        """Check the inputs of one request.

        Args:
            arrays: Input name to array of exactly the declared dtype; for BYTES an object array of ``bytes`` (any
                bytes) or a bytes array such as ``S8`` (NumPy drops NULs at the end of its elements).
            sample: The arrays have the declared shape. Otherwise, if the model supports batching, they have shape
                ``(batch, *shape)`` with the same batch, 1 to the model's maximum, in all of them.

        Returns:
            Views of the arrays, with a batch axis if the model has one. They are neither copied nor modified.

        Raises:
            PyTritonClientInputError: A name, dtype, shape or batch size does not fit the model.
            PyTritonClientValueError: An input is not an array, or there is none though the model has inputs.
        """
        checked = self._check(arrays, sample)
        tensors = []
        for spec, array in checked:
            if self.batching:
                if sample:
                    array = array[np.newaxis]
                elif array.shape[0] > self._max_batch_size:
                    self._raise_too_many_rows(spec, array.shape[0])
            tensors.append(InputTensor(spec.name, spec.datatype, array.shape, array))
        return tensors

    def has_too_many_rows(self, arrays: Mapping[str, Any]) -> bool:
        """Whether an input has more rows than the model takes at once."""
        return any(len(value) > self._max_batch_size for value in arrays.values() if hasattr(value, "__len__"))

    def split(self, arrays: Mapping[str, Any]) -> list[Arrays]:
        """Check the inputs of one request and split it into as few parts as the model's maximum batch size allows.

        Args:
            arrays: As for :meth:`encode` of a batch, with any number of rows.

        Returns:
            One dict of views for each part, in order; none if there are no inputs.

        Raises:
            PyTritonClientInputError: A name, dtype or shape does not fit the model.
            PyTritonClientValueError: An input is not an array, or there is none though the model has inputs.
        """
        checked = self._check(arrays, sample=False)
        size = self._max_batch_size
        starts = range(0, checked[0][1].shape[0] if checked else 0, size)
        return [{spec.name: array[start : start + size] for spec, array in checked} for start in starts]

    def join(self, answers: Sequence[Arrays], rows: Sequence[int]) -> Arrays:
        """The outputs of a batch, from those of its parts.

        Args:
            answers: What :meth:`decode` returned for each part, in order.

        Returns:
            Output name to a new array of shape ``(sum(rows), ...)``.

        Raises:
            PyTritonClientInferenceServerError: The parts' outputs do not fit each other, or a part's do not have one
                row for each of its inputs'.
        """
        joined: Arrays = {}
        for name in self._outputs:
            parts = [answer[name] for answer in answers if name in answer]
            if not parts:
                continue
            if [part.shape[:1] for part in parts] != [(count,) for count in rows]:
                self._raise_unjoinable(name, parts, "each part of the batch needs one row per row of its inputs")
            try:
                joined[name] = np.concatenate(parts)
            except ValueError:
                self._raise_unjoinable(name, parts, "they may differ in the number of rows alone")
        return joined

    def result(self, arrays: Arrays) -> Any:
        """The Python value that the outputs of one row stand for; see :meth:`ModelClient.call`.

        Raises:
            PyTritonClientValueError: The model was not made of a typed function.
            PyTritonClientInferenceServerError: The outputs are not what the model's configuration says.
        """
        if self._typed is None:
            raise PyTritonClientValueError(
                f"model {self._model_name!r} has tensors, and no typed function; use infer_sample or infer_batch"
            )
        try:
            return self._typed.result(arrays)
        except (ValueMismatchError, KeyError) as error:
            raise PyTritonClientInferenceServerError(
                f"an output of model {self._model_name!r} is not what its signature says: {error}"
            ) from error

    def with_texts(self, arrays: Arrays) -> Arrays:
        """The outputs of a request, with ``str`` in those that a typed function returns as texts.

        Raises:
            PyTritonClientInferenceServerError: An output is not what the model's configuration says.
        """
        if self._typed is None:
            return arrays
        try:
            return self._typed.with_texts(arrays)
        except ValueMismatchError as error:
            raise PyTritonClientInferenceServerError(
                f"an output of model {self._model_name!r} is not what its signature says: {error}"
            ) from error

    def _check(self, arrays: Mapping[str, Any], sample: bool) -> list[tuple[_Input, NDArray[Any]]]:
        if self._typed is not None:
            try:
                arrays = self._typed.arrays(arrays, has_rows=self.batching and not sample)
            except ValueMismatchError as error:
                raise PyTritonClientInputError(f"model {self._model_name!r}: {error}") from error
        if self._inputs and not arrays and (self._required or self._typed is None):
            raise PyTritonClientValueError(f"no input was given, but model {self._model_name!r} has inputs")
        if not self._required <= arrays.keys():
            self._raise_missing(arrays)
        has_axis = self.batching and not sample
        checked: list[tuple[_Input, NDArray[Any]]] = []
        for name, value in arrays.items():
            spec = self._inputs.get(name)
            if spec is None:
                raise PyTritonClientInputError(
                    f"model {self._model_name!r} has no input {name!r}; it has {self._listed_inputs()}"
                )
            array = self._checked(spec, value, has_axis)
            if has_axis:
                self._check_rows(name, array.shape[0], checked)
            checked.append((spec, array))
        return checked

    def decode(self, response: InferResponse, *, sample: bool) -> Arrays:
        """The outputs of one response.

        Args:
            response: To a request of the model.
            sample: Remove the batch axis, if the model has one.

        Returns:
            Output name to array; outputs that did not come back are absent. BYTES are object arrays of ``bytes``.
            Arrays of numbers are read-only views of the response.

        Raises:
            PyTritonClientInferenceServerError: The response contradicts itself, or the model's configuration.
        """
        outputs: Arrays = {}
        for name, dtype in self._outputs.items():
            array = response.as_numpy(name)
            if array is None:
                continue
            if array.dtype != dtype:
                self._raise_other_dtype(name, array.dtype, dtype)
            if sample and self.batching:
                if not array.shape or not array.shape[0]:
                    raise PyTritonClientInferenceServerError(
                        f"output {name!r} of model {self._model_name!r} has shape {array.shape}, without a row"
                    )
                array = array[0, ...]  # the ellipsis keeps an array where [0] would give a scalar
            outputs[name] = array
        return outputs

    def _checked(self, spec: _Input, value: Any, has_axis: bool) -> NDArray[Any]:
        if not isinstance(value, np.ndarray):
            raise PyTritonClientValueError(
                f"input {spec.name!r} must be a numpy.ndarray, got {type(value).__name__}; use numpy.asarray"
            )
        array: NDArray[Any] = value
        if spec.datatype == "BYTES":
            array = _checked_bytes(spec.name, array)
        elif array.dtype != spec.dtype:
            raise PyTritonClientInputError(
                f"input {spec.name!r} has dtype {array.dtype}, but model {self._model_name!r} expects "
                f"{spec.dtype}; convert it with .astype(numpy.{spec.dtype.type.__name__})"
            )
        shape = array.shape[1:] if has_axis else array.shape
        if shape != spec.shape or (has_axis and not array.ndim):
            self._check_shape(spec, array.shape, has_axis)
        return array

    def _check_shape(self, spec: _Input, shape: tuple[int, ...], has_axis: bool) -> None:
        expected = (-1, *spec.shape) if has_axis else spec.shape
        if len(shape) == len(expected):
            for want, size in zip(expected, shape, strict=True):
                if want != size and want != -1:
                    break
            else:
                return
        axes = ["batch"] * has_axis + ["any" if size == -1 else str(size) for size in spec.shape]
        listed = f"({axes[0]},)" if len(axes) == 1 else f"({', '.join(axes)})"
        hint = ""
        if has_axis and len(shape) == len(spec.shape):
            hint = "; for a single sample use infer_sample"
        elif self.batching and not has_axis and len(shape) == len(spec.shape) + 1:
            hint = "; for a batch use infer_batch"
        raise PyTritonClientInputError(
            f"input {spec.name!r} has shape {shape}, but model {self._model_name!r} expects {listed}{hint}"
        )

    def _check_rows(self, name: str, rows: int, others: Sequence[tuple[_Input, NDArray[Any]]]) -> None:
        if rows == 0:
            raise PyTritonClientInputError(f"input {name!r} has no rows; a batch needs at least one")
        if others and rows != others[0][1].shape[0]:
            first, array = others[0]
            raise PyTritonClientInputError(
                f"input {name!r} has {rows} rows, but input {first.name!r} has {array.shape[0]}; all inputs of one "
                "request must have the same batch size"
            )

    def _raise_too_many_rows(self, spec: _Input, rows: int) -> None:
        raise PyTritonClientInputError(
            f"input {spec.name!r} has {rows} rows, but the batch-size must be <= {self._max_batch_size} for model "
            f"{self._model_name!r}; send it in parts through client.with_options(split_batches=True), or raise "
            "max_batch_size in the model's configuration"
        )

    def _raise_unjoinable(self, name: str, parts: Sequence[NDArray[Any]], reason: str) -> None:
        shapes = ", ".join(str(part.shape) for part in parts[:10])
        raise PyTritonClientInferenceServerError(
            f"output {name!r} of model {self._model_name!r} came back with shapes {shapes} for the parts of a split "
            f"batch; {reason}"
        )

    def _raise_other_dtype(self, name: str, found: np.dtype[Any], expected: np.dtype[Any]) -> None:
        raise PyTritonClientInferenceServerError(
            f"output {name!r} of model {self._model_name!r} came back as {_datatype(found)}, but its configuration "
            f"says {_datatype(expected)}; if the model has been replaced, make a new client"
        )

    def _raise_missing(self, arrays: Mapping[str, Any]) -> None:
        missing = ", ".join(repr(name) for name in self._inputs if name in self._required and name not in arrays)
        raise PyTritonClientInputError(
            f"input {missing} of model {self._model_name!r} is missing; it has {self._listed_inputs()}"
        )

    def _listed_inputs(self) -> str:
        names = [f"{name!r} (optional)" if spec.optional else repr(name) for name, spec in self._inputs.items()]
        return f"inputs {', '.join(names)}" if names else "no inputs"


def _array_dtype(spec: TensorSpec) -> np.dtype[Any]:
    return np.dtype(object if triton_name(spec.dtype) == "BYTES" else spec.dtype)


def _datatype(dtype: np.dtype[Any]) -> str:
    return "BYTES" if dtype.hasobject else triton_name(dtype)


def _checked_bytes(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "S":
        return array
    if array.dtype.kind == "U":
        raise PyTritonClientInputError(
            f"input {name!r} holds text, but BYTES are expected; encode it, e.g. with numpy.char.encode(x, 'utf-8')"
        )
    if array.dtype.kind != "O":
        raise PyTritonClientInputError(
            f"input {name!r} has dtype {array.dtype}, but BYTES are expected; pass an object array of bytes"
        )
    items = array.ravel().tolist()
    types = set(map(type, items))
    if types <= {bytes}:
        return array
    for item in items:
        if not isinstance(item, bytes):
            raise PyTritonClientInputError(
                f"input {name!r} holds a {type(item).__name__} ({item!r:.50}), but every element must be bytes"
            )
    # Subclasses of bytes, such as numpy.bytes_.
    converted = np.empty(array.shape, dtype=object)
    converted.ravel()[:] = [bytes(item) for item in items]
    return converted
