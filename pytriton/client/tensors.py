"""Tensors of requests and responses, between NumPy arrays and the bytes that travel."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.model_config.dtypes import from_triton_name, triton_name

__all__ = ["InferResponse", "InputTensor", "OutputRequest", "deserialize_bytes", "serialize_bytes"]

HEADER_LENGTH = "Inference-Header-Content-Length"
_LENGTH_BYTES = 4  # before each element of BYTES
_LONG_ELEMENT_BYTES = 1024
_COPIED_BYTES = 2**12  # up to this size, a copy is made sooner than a view


class InputTensor(NamedTuple):
    """One input of a request.

    Attributes:
        datatype: E.g. ``FP32``.
        shape: With the batch axis, if the model has one.
        array: The values; BYTES are ``bytes`` objects or a dtype such as ``S8``. None if they are in shared memory.
        region: Name of the region of shared memory that holds the values.
        region_bytes: Size of the values in the region.
    """

    name: str
    datatype: str
    shape: Sequence[int]
    array: NDArray[Any] | None
    region: str = ""
    region_bytes: int = 0

    def data(self) -> memoryview | bytes | None:
        """The values as bytes in C order; a view of a large contiguous array. None if they are in a region."""
        if self.array is None:
            return None
        if self.datatype == "BYTES":
            return serialize_bytes(self.array.ravel().tolist())
        if self.array.nbytes <= _COPIED_BYTES:
            return self.array.tobytes()
        return np.ascontiguousarray(self.array).reshape(-1).view(np.uint8).data


class OutputRequest(NamedTuple):
    """One output that a request asks for.

    Attributes:
        class_count: The number of best classes to send; 0 sends all values.
        region: Name of the region of shared memory that the server writes the values to; empty sends them.
        region_bytes: Size of that region.
    """

    name: str
    class_count: int = 0
    region: str = ""
    region_bytes: int = 0


class _Output(NamedTuple):
    """One output as it came: the shape is not checked; data are None if they are elsewhere, as in shared memory."""

    datatype: str
    shape: Sequence[int]
    data: memoryview | bytes | list[Any] | None


class InferResponse:
    """The response to an inference. Whatever a server sends becomes arrays, or an error.

    Args:
        outputs: Name and output of each.
        message: What the server sent, for :meth:`get_response`.

    Raises:
        PyTritonClientInferenceServerError: Two outputs have one name.
    """

    def __init__(self, outputs: Sequence[tuple[str, _Output]], message: Any) -> None:
        self._outputs = dict(outputs)
        self._message = message
        if len(self._outputs) < len(outputs):
            raise _not_understood("two of its outputs have one name")

    @classmethod
    def from_http(cls, body: bytes | memoryview, headers: Mapping[str, str]) -> InferResponse:
        """Parse the body of a response with status 200.

        Args:
            body: JSON, followed by the data of the outputs.
            headers: By name in any letter case.

        Raises:
            PyTritonClientInferenceServerError: The response contradicts itself.
        """
        length = _header_length(body, headers.get(HEADER_LENGTH))
        try:
            answer = json.loads(str(body[:length], "utf-8"))
            outputs, end = [], length
            for item in answer["outputs"]:
                begin, size = end, (item.get("parameters") or {}).get("binary_data_size")
                if size is None:
                    data = item.get("data")
                elif type(size) is int and 0 <= size <= len(body) - begin:
                    end += size
                    data = memoryview(body)[begin:end]
                else:
                    raise ValueError(f"output {item['name']!r} has {size!r} bytes of {len(body) - begin}")
                outputs.append((item["name"], _Output(item["datatype"], item["shape"], data)))
            response = cls(outputs, answer)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise _not_understood(f"{type(error).__name__}: {error}") from error
        if end != len(body):
            raise _not_understood(f"{len(body) - end} bytes follow its last output")
        return response

    @classmethod
    def from_event(cls, event: bytes) -> InferResponse:
        """Parse a server-sent event of the server's extension "generate": outputs are texts, or lists of texts.

        Raises:
            PyTritonClientInferenceServerError: It is something else.
        """
        try:
            answer = json.loads(event.removeprefix(b"data:").decode())
            lists = {name: [value] if isinstance(value, str) else value for name, value in answer.items()}
        except (AttributeError, RecursionError, ValueError) as error:
            raise _not_understood(f"{type(error).__name__}: {error}") from error
        outputs = [
            (name, _Output("BYTES", [len(texts)], texts)) for name, texts in lists.items() if isinstance(texts, list)
        ]
        return cls(outputs, answer)

    @classmethod
    def from_grpc(cls, message: Any) -> InferResponse:
        """Parse a ``ModelInferResponse``.

        Raises:
            PyTritonClientInferenceServerError: The response contradicts itself.
        """
        items, raw = message.outputs, message.raw_output_contents
        if raw and len(raw) != len(items):
            raise _not_understood(f"it has {len(items)} outputs, but the data of {len(raw)}")
        outputs = []
        for index, item in enumerate(items):
            data = raw[index] if raw else list(item.contents.bytes_contents) or None
            outputs.append((item.name, _Output(item.datatype, item.shape, data)))
        return cls(outputs, message)

    def as_numpy(self, name: str) -> NDArray[Any] | None:
        """An output: of numbers a read-only view of the response, of BYTES an object array; None if it did not come.

        Raises:
            PyTritonClientInferenceServerError: Its data do not fit its shape and datatype.
        """
        output = self._outputs.get(name)
        if output is None:
            return None
        try:
            return _array(*output)
        except (KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise PyTritonClientInferenceServerError(
                f"output {name!r} in the server's response cannot be decoded: {error}"
            ) from error

    def get_response(self) -> Any:
        """The response as it came: a dict over HTTP, a protobuf message over gRPC."""
        return self._message


def serialize_bytes(elements: Sequence[bytes]) -> bytes:
    """BYTES as they travel: each element after its length, a little-endian uint32."""
    pack = struct.Struct("<I").pack
    return b"".join([part for element in elements for part in (pack(len(element)), element)])


def deserialize_bytes(data: memoryview | bytes, count: int) -> NDArray[Any]:
    """Inverse of :func:`serialize_bytes`: an array of ``count`` objects of ``bytes``.

    Raises:
        ValueError: There are more or fewer.
    """
    if len(data) < count * _LENGTH_BYTES:
        raise ValueError(f"its {len(data)} bytes are too few for {count} BYTES")
    # Slices of bytes are cheaper than those of views, if copying all of them is cheap.
    content = data if len(data) > count * _LONG_ELEMENT_BYTES else bytes(data)
    end, elements = 0, []
    for _ in range(count):
        begin = end + _LENGTH_BYTES
        end = begin + int.from_bytes(content[begin - _LENGTH_BYTES : begin], "little")
        elements.append(bytes(content[begin:end]))
    if end != len(content):
        raise ValueError(f"its {count} BYTES have {end} bytes, but {len(content)} came")
    array = np.empty(count, object)
    array[:] = elements
    return array


def _not_understood(reason: str) -> PyTritonClientInferenceServerError:
    return PyTritonClientInferenceServerError(f"the server's response cannot be understood: {reason}")


def _header_length(body: bytes | memoryview, text: str | None) -> int:
    """Bytes of the JSON at the beginning of a body; all of it, unless a header says otherwise."""
    if text is None:
        return len(body)
    length = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not 0 <= length <= len(body):
        raise _not_understood(f"{HEADER_LENGTH} is {text!r:.100}, but its body has {len(body)} bytes")
    return length


def _array(datatype: str, shape: Sequence[int], data: memoryview | bytes | list[Any] | None) -> NDArray[Any]:
    dtype = np.dtype(object if datatype == "BYTES" else from_triton_name(datatype))
    sizes = tuple(shape)
    for size in sizes:
        if type(size) is not int or size < 0:
            raise ValueError(f"its shape is {sizes}")
    count = math.prod(sizes)
    if data is None:
        raise ValueError("it came without data")
    if isinstance(data, list):
        array = _from_values(data, dtype)
    elif dtype.hasobject:
        array = deserialize_bytes(data, count)
    elif len(data) != count * dtype.itemsize:
        raise ValueError(f"it has {len(data)} bytes, but {datatype} of shape {sizes} have {count * dtype.itemsize}")
    else:
        array = np.frombuffer(data, dtype) if count else np.empty(0, dtype)
        if dtype.kind == "b" and count and array.view(np.uint8).max() > 1:
            raise ValueError("a BOOL is neither 0 nor 1")
    return array.reshape(sizes)


def _from_values(values: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Values from JSON, nested or not, if they are of the dtype."""
    if dtype.hasobject:
        elements = [value.encode() if isinstance(value, str) else value for value in _flat(values)]
        if not all(isinstance(element, bytes) for element in elements):
            raise ValueError("an element is no text")
        array = np.empty(len(elements), object)
        array[:] = elements
        return array
    found = np.array(values)
    if found.size and found.dtype.kind not in {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}[dtype.kind]:
        raise ValueError(f"its elements are not of the type {triton_name(dtype)}")
    with np.errstate(over="ignore"):
        array = found.astype(dtype)
    same = np.array_equal(np.isinf(array), np.isinf(found)) if dtype.kind == "f" else np.array_equal(array, found)
    if not same:
        raise ValueError(f"its elements are beyond the range of {triton_name(dtype)}")
    array.flags.writeable = False
    return array


def _flat(values: list[Any]) -> list[Any]:
    while any(isinstance(value, list) for value in values):
        values = [inner for value in values for inner in (value if isinstance(value, list) else [value])]
    return values
