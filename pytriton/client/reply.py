"""The outputs in a server's answer to an inference, checked: whatever a server sends becomes arrays, or an error."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.client.http_message import HttpResponse
from pytriton.model_config.dtypes import from_triton_name, triton_name

__all__ = ["GrpcReply", "HttpReply", "Reply", "check_request_id"]

_HEADER_LENGTH = "Inference-Header-Content-Length"
_LENGTH_BYTES = 4  # before each of BYTES
_LONG_TEXT = 1024


class Output(NamedTuple):
    """One output, as it came.

    Attributes:
        datatype: E.g. ``FP32``.
        shape: Not checked.
        data: Its bytes, or JSON's list of values; None if they are elsewhere, as in shared memory.
    """

    datatype: str
    shape: Sequence[int]
    data: memoryview | bytes | list[Any] | None


class Reply:
    """The outputs of one answer, by name.

    Args:
        outputs: Name and output of each.
        response: What they are from, for :meth:`get_response`.

    Raises:
        PyTritonClientInferenceServerError: Two outputs have one name.
    """

    def __init__(self, outputs: Sequence[tuple[str, Output]], response: Any) -> None:
        self._outputs = dict(outputs)
        self._response = response
        if len(self._outputs) < len(outputs):
            raise _not_understood("two of its outputs have one name")

    def as_numpy(self, name: str) -> NDArray[Any] | None:
        """An output: of numbers a read-only view of the answer, of BYTES an object array; None if it did not come.

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
        """The answer as it came: a dict, or a message of gRPC."""
        return self._response


def check_request_id(response: Any, request_id: str) -> None:
    """Check that a response on a gRPC stream is to the request that was sent.

    Triton 2.51 can send responses on the stream of another client, after one has cancelled a stream just when it ended.

    Raises:
        ConnectionError: It is to another request; the stream is of no use any more.
    """
    if response.id not in ("", request_id):
        raise ConnectionError(
            f"the server sent a response to request {response.id!r} on the stream of request {request_id!r}; send the "
            "request again"
        )


class HttpReply(Reply):
    """An answer over HTTP.

    Args:
        response: With status 200.

    Raises:
        PyTritonClientInferenceServerError: It contradicts itself.
    """

    def __init__(self, response: HttpResponse) -> None:
        body, length = response.body, _header_length(response)
        try:
            answer = json.loads(body[:length] if length < len(body) else body)
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
                outputs.append((item["name"], Output(item["datatype"], item["shape"], data)))
            super().__init__(outputs, answer)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise _not_understood(f"{type(error).__name__}: {error}") from error
        if end != len(body):
            raise _not_understood(f"{len(body) - end} bytes follow its last output")


class GrpcReply(Reply):
    """An answer over gRPC.

    Args:
        message: A ``ModelInferResponse``.

    Raises:
        PyTritonClientInferenceServerError: It contradicts itself.
    """

    def __init__(self, message: Any) -> None:
        items, raw = message.outputs, message.raw_output_contents
        if raw and len(raw) != len(items):
            raise _not_understood(f"it has {len(items)} outputs, but the data of {len(raw)}")
        outputs = []
        for index, item in enumerate(items):
            data = raw[index] if raw else list(item.contents.bytes_contents) or None
            outputs.append((item.name, Output(item.datatype, item.shape, data)))
        super().__init__(outputs, message)


def _not_understood(reason: str) -> PyTritonClientInferenceServerError:
    return PyTritonClientInferenceServerError(f"the server's response cannot be understood: {reason}")


def _header_length(response: HttpResponse) -> int:
    """Bytes of the JSON at the beginning of a body; all of it, unless a header says otherwise."""
    text = response.headers.get(_HEADER_LENGTH)
    if text is None:
        return len(response.body)
    length = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not 0 <= length <= len(response.body):
        raise _not_understood(f"{_HEADER_LENGTH} is {text!r:.100}, but its body has {len(response.body)} bytes")
    return length


def _array(datatype: str, shape: Sequence[int], data: memoryview | bytes | list[Any] | None) -> NDArray[Any]:
    dtype = np.dtype(object if datatype == "BYTES" else from_triton_name(datatype))
    sizes = tuple(shape)
    if any(type(size) is not int or size < 0 for size in sizes):
        raise ValueError(f"its shape is {sizes}")
    count = math.prod(sizes)
    if data is None:
        raise ValueError("it came without data")
    if isinstance(data, list):
        array = _from_values(data, dtype)
    elif dtype.hasobject:
        array = _from_strings(data, count)
    elif len(data) != count * dtype.itemsize:
        raise ValueError(f"it has {len(data)} bytes, but {datatype} of shape {sizes} have {count * dtype.itemsize}")
    else:
        array = np.frombuffer(data, dtype) if count else np.empty(0, dtype)
        if dtype.kind == "b" and count and array.view(np.uint8).max() > 1:
            raise ValueError("a BOOL is neither 0 nor 1")
    return array.reshape(sizes)


def _from_strings(data: memoryview | bytes, count: int) -> NDArray[Any]:
    """Texts, each after its length; exactly ``count`` of them."""
    if len(data) < count * _LENGTH_BYTES:
        raise ValueError(f"its {len(data)} bytes are too few for {count} BYTES")
    # Slices of bytes are cheaper than those of views, if copying all of them is cheap.
    content = data if len(data) > count * _LONG_TEXT else bytes(data)
    end, texts = 0, []
    for _ in range(count):
        begin = end + _LENGTH_BYTES
        end = begin + int.from_bytes(content[begin - _LENGTH_BYTES : begin], "little")
        texts.append(bytes(content[begin:end]))
    if end != len(content):
        raise ValueError(f"its {count} BYTES have {end} bytes, but {len(content)} came")
    array = np.empty(count, object)
    array[:] = texts
    return array


def _from_values(values: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """JSON's values, nested or not, if they are of the dtype."""
    if dtype.hasobject:
        texts = [text.encode() if isinstance(text, str) else text for text in _flat(values)]
        if not all(isinstance(text, bytes) for text in texts):
            raise ValueError("an element is no text")
        array = np.empty(len(texts), object)
        array[:] = texts
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
