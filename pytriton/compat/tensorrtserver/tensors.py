"""Between v1's lists of arrays, one for each entry of a batch, and tensors of requests and responses, for one model."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.client.tensors import InferResponse, InputTensor, OutputRequest
from pytriton.client.tritonclients import cuda_contents
from pytriton.compat.tensorrtserver import cuda_shared_memory, shared_memory
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException
from pytriton.compat.tensorrtserver.shared_memory import SharedMemoryHandle, as_bytes
from pytriton.model_config.dtypes import triton_name
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

__all__ = ["Classes", "RequestedOutput", "ResultFormat", "Results", "Tensors"]

Classes = list[tuple[int, float, str | None]]
Results = dict[str, list[Any]]


class ResultFormat:
    """The forms of an output: ``RAW``, all values as an array, and ``(CLASS, k)``, the k best classes."""

    RAW = 1
    CLASS = 2


@dataclass(frozen=True)
class RequestedOutput:
    """One output that a request asks for.

    Args:
        class_count: How many of the best classes; 0 is all values.
        region: Where the server puts the values instead of the response.
        handle: Of the region, as the program passed it.
    """

    name: str
    class_count: int = 0
    region: SharedMemoryHandle | None = None
    handle: Any = None

    @classmethod
    def of(cls, name: str, wanted: Any) -> RequestedOutput:
        """The output of an entry in the ``outputs`` of :meth:`InferContext.run`.

        Raises:
            InferenceServerException: It is not ``RAW``, ``(CLASS, k)`` or ``(RAW, handle)``.
        """
        form, *more = wanted if isinstance(wanted, (list, tuple)) and wanted else (wanted,)
        if isinstance(form, int) and form == ResultFormat.RAW:
            if not more:
                return cls(name)
            if len(more) == 1:
                return cls(name, region=SharedMemoryHandle.of(more[0]), handle=more[0])
        if isinstance(form, int) and form == ResultFormat.CLASS and len(more) == 1 and (count := _count(more[0])):
            return cls(name, class_count=count)
        raise InferenceServerException(
            f"output {name!r} is wanted as {wanted!r}, but must be as ResultFormat.RAW, (ResultFormat.RAW, handle of "
            "shared memory), or (ResultFormat.CLASS, count of classes)"
        )

    @property
    def request(self) -> OutputRequest:
        """What the request says of it."""
        if self.region is None:
            return OutputRequest(self.name, self.class_count)
        return OutputRequest(self.name, self.class_count, self.region.name, self.region.byte_size)


class Tensors:
    """Checks and encodes the inputs of one model, and decodes its outputs.

    Args:
        config: Description of the model.
    """

    def __init__(self, config: TritonModelConfig) -> None:
        self._model_name = config.model_name
        self._max_batch_size = config.max_batch_size
        self._inputs = {spec.name: spec for spec in config.inputs or ()}
        self._outputs = {spec.name: spec for spec in config.outputs or ()}

    def fit(self, inputs: Mapping[str, Any]) -> bool:
        """Whether the arrays of a request have as many axes as this description says, as far as there are arrays."""
        return all(
            array.ndim == len(self._inputs[name].shape)
            for name, arrays in inputs.items()
            if name in self._inputs and isinstance(arrays, (list, tuple))
            for array in arrays
            if isinstance(array, np.ndarray)
        )

    def encode(self, inputs: Mapping[str, Any], batch_size: int) -> list[InputTensor]:
        """Check the inputs of one request.

        Args:
            inputs: Name to a list of ``batch_size`` arrays without batch axis, all of one shape; or to a handle of
                shared memory that holds the whole batch, or for variable shapes to ``(handle, shape)``. Elements of
                another dtype than the model's, but of the same size, count as if they were of that.
            batch_size: 1 to the model's maximum; 1 for a model without batching.

        Raises:
            InferenceServerException: They do not fit the model.
        """
        largest = max(1, self._max_batch_size)
        if not 1 <= batch_size <= largest:
            raise InferenceServerException(
                f"batch_size is {batch_size}, but model {self._model_name!r} takes 1 to {largest}"
            )
        if not isinstance(inputs, Mapping):
            raise InferenceServerException(f"inputs must be a dict, got {type(inputs).__name__}")
        given = [(self._known(self._inputs, name), value) for name, value in inputs.items()]
        missing = [name for name, spec in self._inputs.items() if not spec.optional and name not in inputs]
        if missing:
            raise InferenceServerException(f"model {self._model_name!r} also needs the inputs {', '.join(missing)}")
        return [self._encode(spec, value, batch_size) for spec, value in given]

    def wanted(self, outputs: Mapping[str, Any]) -> list[RequestedOutput]:
        """Check which outputs of the model are wanted, and how; the values are those of :meth:`RequestedOutput.of`.

        Raises:
            InferenceServerException: The model has no such output, or not in that form.
        """
        if not isinstance(outputs, Mapping):
            raise InferenceServerException(f"outputs must be a dict, got {type(outputs).__name__}")
        found = [RequestedOutput.of(self._known(self._outputs, name).name, form) for name, form in outputs.items()]
        for output in found:
            if output.class_count and self._outputs[output.name].dtype is np.bytes_:
                # The server (2.51) would crash.
                raise InferenceServerException(f"output {output.name!r} holds strings, which have no classes")
        return found

    def decode(self, response: InferResponse, outputs: Sequence[RequestedOutput], batch_size: int) -> Results:
        """What was wanted of a response.

        Args:
            response: To the request.
            outputs: What was wanted.

        Returns:
            Name to a list with one value for each entry of the batch. In the raw form, a new array without batch axis;
            strings are object arrays of ``bytes``. As classes, a list of ``(index, value, label)``, the best first;
            the label is None if the model has none. What went to shared memory is read from there; it is absent if
            this process cannot read it, because it only knows a GPU's memory by its raw handle.

        Raises:
            InferenceServerException: The response contradicts the request.
        """
        try:
            return {
                output.name: self._decode(array, output, batch_size)
                for output in outputs
                if (array := self._array(response, output)) is not None
            }
        except (IndexError, TypeError, ValueError, struct.error) as error:
            raise InferenceServerException(f"the response cannot be decoded: {error}") from None

    def _encode(self, spec: TensorSpec, value: Any, batch_size: int) -> InputTensor:
        batch = [batch_size] if self._max_batch_size else []
        dims = list(spec.shape or (1,))
        if SharedMemoryHandle.is_one(value):
            value = (value, dims)
        if isinstance(value, (list, tuple)) and len(value) == 2 and SharedMemoryHandle.is_one(value[0]):
            return self._in_region(spec, SharedMemoryHandle.of(value[0]), [*batch, *map(int, value[1])])
        array = self._stacked(spec, dims, value, batch_size)
        return InputTensor(spec.name, triton_name(spec.dtype), array.shape, array)

    def _in_region(self, spec: TensorSpec, handle: SharedMemoryHandle, shape: list[int]) -> InputTensor:
        if -1 in shape:
            raise InferenceServerException(f"input {spec.name!r} has a variable shape; pass (handle, shape)")
        itemsize = 0 if spec.dtype is np.bytes_ else np.dtype(spec.dtype).itemsize
        # The server reads as many bytes as the shape has, and of strings all that there are.
        size = math.prod(shape) * itemsize or handle.byte_size
        return InputTensor(spec.name, triton_name(spec.dtype), shape, None, handle.name, size)

    def _stacked(self, spec: TensorSpec, dims: list[int], arrays: Any, batch_size: int) -> NDArray[Any]:
        if not isinstance(arrays, (list, tuple)) or not all(isinstance(array, np.ndarray) for array in arrays):
            raise InferenceServerException(
                f"input {spec.name!r} must be a list of arrays, one for each entry of the batch"
            )
        if len(arrays) != batch_size:
            raise InferenceServerException(
                f"input {spec.name!r} has {len(arrays)} arrays, but batch_size is {batch_size}"
            )
        shape = arrays[0].shape
        if any(array.shape != shape for array in arrays):
            raise InferenceServerException(f"the arrays of input {spec.name!r} differ in their shapes")
        if len(shape) != len(dims) or any(want not in (-1, size) for want, size in zip(dims, shape, strict=True)):
            raise InferenceServerException(
                f"input {spec.name!r} has shape {list(shape)}, but model {self._model_name!r} takes {dims}"
            )
        typed = [_typed(spec, array) for array in arrays]
        return np.stack(typed) if self._max_batch_size else typed[0]

    def _array(self, response: InferResponse, output: RequestedOutput) -> NDArray[Any] | None:
        if output.region is not None:
            return _contents(output.handle, self._outputs[output.name].dtype, _shape(response, output.name))
        array: NDArray[Any] | None = response.as_numpy(output.name)
        if array is None:
            raise InferenceServerException(f"the response lacks output {output.name!r}")
        return array

    def _decode(self, array: NDArray[Any], output: RequestedOutput, batch_size: int) -> list[Any]:
        rows = array if self._max_batch_size else array[np.newaxis]
        if len(rows) != batch_size:
            raise InferenceServerException(f"output {output.name!r} has {len(rows)} rows for a batch of {batch_size}")
        if output.class_count:
            return [[_class(text) for text in row.ravel().tolist()] for row in rows]
        dtype = self._outputs[output.name].dtype
        return [np.array(row, dtype=object if dtype is np.bytes_ else dtype) for row in rows]

    def _known(self, specs: Mapping[str, TensorSpec], name: str) -> TensorSpec:
        if name not in specs:
            kind = "input" if specs is self._inputs else "output"
            raise InferenceServerException(
                f"model {self._model_name!r} has no {kind} {name!r}; it has {', '.join(specs) or 'none'}"
            )
        return specs[name]


def _contents(handle: Any, dtype: Any, shape: Sequence[int]) -> NDArray[Any] | None:
    """What the server has written to a region; None if this process cannot read it."""
    if isinstance(handle, cuda_shared_memory.CudaSharedMemoryRegion):
        return cuda_shared_memory.get_contents_as_numpy(handle, dtype, shape)
    if (found := cuda_contents(handle, dtype, shape)) is not None:
        return found
    if SharedMemoryHandle.of(handle).raw_handle is not None:
        return None
    return shared_memory.get_contents_as_numpy(handle, dtype, shape)


def _shape(response: InferResponse, name: str) -> Sequence[int]:
    """The shape of an output whose values are not in the response."""
    message = response.get_response()
    if isinstance(message, Mapping):
        return list(next(output["shape"] for output in message["outputs"] if output["name"] == name))
    return list(next(output.shape for output in message.outputs if output.name == name))


def _typed(spec: TensorSpec, array: NDArray[Any]) -> NDArray[Any]:
    if spec.dtype is np.bytes_:
        return as_bytes(array)
    dtype = np.dtype(spec.dtype)
    if array.dtype.hasobject or array.dtype.itemsize != dtype.itemsize:
        raise InferenceServerException(
            f"input {spec.name!r} has dtype {array.dtype}, but the model takes {dtype}; convert it with astype"
        )
    return array if array.dtype == dtype else np.ascontiguousarray(array).view(dtype).reshape(array.shape)


def _class(text: bytes) -> tuple[int, float, str | None]:
    value, index, *label = text.decode().split(":", 2)
    return int(index), float(value), label[0] if label else None


def _count(value: Any) -> int:
    """A count of classes; 0 if it is invalid."""
    try:
        return max(0, operator.index(value))
    except TypeError:
        return 0
