"""Tensors that models get and return: memory with a data type and a shape."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from pytriton.client.tensors import deserialize_bytes, serialize_bytes
from pytriton.inprocess.capi import DataType, DLDeviceType, MemoryType
from pytriton.inprocess.exceptions import InvalidArgumentError, InvalidTypeError, UnsupportedError
from pytriton.inprocess.memory import CODES, MemoryBuffer, Place, copy, describe, make_capsule, place_of
from pytriton.wire.tensors import DTYPES as WIRE_DTYPES

__all__ = ["DATA_TYPES", "Tensor", "array_view", "tensor_of"]

DTYPES = [WIRE_DTYPES.get(data_type) for data_type in DataType]  # by number
DATA_TYPES = {dtype: DataType(number) for number, dtype in enumerate(DTYPES) if dtype is not None}
TEXTS = "OSUT"  # kinds of dtypes of BYTES; T is StringDType of NumPy 2


@dataclass
class Tensor:
    """Memory with a data type and a shape. ``numpy.from_dlpack(tensor)`` is a view of it, which keeps the tensor.

    Attributes:
        data_type: Type of the elements.
        shape: With the batch axis, if the model has one.
        memory_buffer: Its memory, in C order.
    """

    data_type: DataType
    shape: Sequence[int]
    memory_buffer: MemoryBuffer

    @property
    def data_ptr(self) -> int:
        """Address of the memory."""
        return self.memory_buffer.data_ptr

    @property
    def memory_type(self) -> MemoryType:
        """Type of the memory."""
        return self.memory_buffer.memory_type

    @property
    def memory_type_id(self) -> int:
        """Number of the GPU; else 0."""
        return self.memory_buffer.memory_type_id

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return self.memory_buffer.size

    @staticmethod
    def from_dlpack(obj: Any) -> Tensor:
        """Another library's tensor, without a copy.

        Raises:
            InvalidArgumentError: It has no ``__dlpack__``, an unsupported dtype, or is not in C order.
        """
        return Tensor(*describe(obj))

    @staticmethod
    def from_bytes_array(bytes_array: Sequence[str | bytes] | npt.NDArray[Any]) -> Tensor:
        """A BYTES tensor in new memory.

        Args:
            bytes_array: Texts or bytes: a list of them, or an array of dtype object, ``S``, ``U`` or ``StringDType``.
                NumPy drops NULs at the end of the elements of ``S`` and ``U`` arrays; lists and other arrays keep them.

        Raises:
            InvalidTypeError: It is something else.
        """
        array = np.array(bytes_array, np.object_) if isinstance(bytes_array, list) else bytes_array
        if not isinstance(array, np.ndarray) or array.dtype.kind not in TEXTS:
            raise InvalidTypeError(f"{bytes_array!r:.200} is no list or array of texts or bytes")
        data = serialize_bytes([*map(_encoded, array.ravel())])
        return Tensor(DataType.BYTES, array.shape, MemoryBuffer.from_array(np.frombuffer(data, np.uint8)))

    @staticmethod
    def from_string_array(string_array: Sequence[str] | npt.NDArray[Any]) -> Tensor:
        """As :meth:`from_bytes_array`."""
        return Tensor.from_bytes_array(string_array)

    def to_bytes_array(self) -> npt.NDArray[np.object_]:
        """The elements of a BYTES tensor as ``bytes``, in an array of the tensor's shape.

        Raises:
            InvalidArgumentError: It has another data type, or its memory does not hold as many elements.
        """
        if self.data_type != DataType.BYTES:
            raise InvalidArgumentError(f"a tensor of {self.data_type.name} holds no bytes; use numpy.from_dlpack")
        host = self.to_host()
        try:
            elements = deserialize_bytes(ctypes.string_at(host.data_ptr, host.size), prod(self.shape))
        except ValueError as error:
            raise InvalidArgumentError(f"the tensor of shape {tuple(self.shape)} is damaged: {error}") from error
        return elements.reshape(self.shape)

    def to_string_array(self) -> npt.NDArray[np.str_]:
        """The elements of a BYTES tensor as texts, from UTF-8. NumPy drops NULs at the end of a text.

        Raises:
            InvalidArgumentError: It has another data type, or an element is not UTF-8.
        """
        elements = self.to_bytes_array()
        try:
            texts = [element.decode() for element in elements.ravel()]
        except UnicodeDecodeError as error:
            raise InvalidArgumentError(f"an element is no text in UTF-8: {error}; use to_bytes_array()") from error
        return np.array(texts, np.str_).reshape(elements.shape)

    def to_device(self, device: MemoryType | Place | tuple[DLDeviceType, int] | tuple[int, int] | str) -> Tensor:
        """This tensor if it is in that memory already; otherwise a copy there.

        Raises:
            InvalidArgumentError: ``device`` names no memory.
            UnsupportedError: The copy is from or to a GPU, or to page-locked memory, and CuPy or the GPU is missing.
        """
        wanted = place_of(device)
        found = self.memory_type, self.memory_type_id
        if wanted == found:
            return self
        if wanted[0] == MemoryType.CPU and self.memory_type == MemoryType.CPU_PINNED:
            return self
        return Tensor(self.data_type, self.shape, copy(self.memory_buffer, self.size, wanted))

    def to_host(self) -> Tensor:
        """This tensor in memory of the CPU; errors as :meth:`to_device`."""
        return self.to_device(MemoryType.CPU)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            if copy is False:
                raise UnsupportedError(f"a tensor on {self.__dlpack_device__()} is on {dl_device} as a copy alone")
            kind, number = dl_device
            place = (DLDeviceType(kind) if kind in {*DLDeviceType} else kind, number)
            return self.to_device(place).__dlpack__(stream=stream)
        on_gpu = self.memory_type == MemoryType.GPU
        if stream not in (None, 0) and not on_gpu:  # memory of a GPU is complete: any stream may read it
            raise UnsupportedError(f"a tensor in memory of the CPU knows no stream; stream is {stream!r}")
        if not on_gpu and self._dtype() is not None:
            array = _view(self, owner=(self, self.memory_buffer))
            return (array.copy() if copy else array).__dlpack__()
        if self.data_type not in CODES:
            raise InvalidArgumentError(f"DLPack has no tensors of {self.data_type.name}")
        if copy:
            raise UnsupportedError(
                f"a tensor of {self.data_type.name} in {self.memory_type.name} memory cannot be copied"
            )
        self._bytes_needed(CODES[self.data_type][1] // 8)
        owner = self, self.memory_buffer  # which may be assigned
        return make_capsule(self.data_ptr, self.__dlpack_device__(), self.data_type, self.shape, owner)

    def __dlpack_device__(self) -> tuple[int, int]:
        device = DLDeviceType.kDLCUDA if self.memory_type == MemoryType.GPU else DLDeviceType.kDLCPU
        return int(device), self.memory_type_id

    def _dtype(self) -> np.dtype[Any] | None:
        if not isinstance(self.data_type, DataType):
            raise InvalidTypeError(f"data_type is {self.data_type!r}; give a DataType")
        return DTYPES[self.data_type]

    def _bytes_needed(self, item_bytes: int) -> int:
        """Bytes of the shape; the memory must have as many."""
        size = prod(self.shape) * item_bytes
        if size > self.memory_buffer.size:
            raise InvalidArgumentError(f"the shape {tuple(self.shape)} takes {size} bytes, the memory has {self.size}")
        return size


def array_view(tensor: Tensor) -> npt.NDArray[Any]:
    """A view of a tensor's memory, which it keeps alive.

    Raises:
        InvalidArgumentError: NumPy has no dtype for it, or the memory is smaller than the shape.
    """
    return _view(tensor, tensor.memory_buffer)


def _view(tensor: Tensor, owner: object) -> npt.NDArray[Any]:
    dtype = tensor._dtype()
    if dtype is None:
        raise InvalidArgumentError(f"NumPy has no dtype for {tensor.data_type.name}")
    buffer = tensor.memory_buffer
    memory: Any = (ctypes.c_uint8 * tensor._bytes_needed(dtype.itemsize)).from_address(buffer.data_ptr)
    memory.owner = owner
    return np.ndarray(tensor.shape, dtype, memory)


def tensor_of(value: Any) -> Tensor:
    """A tensor from a caller's value: without a copy if that is in C order and native byte order.

    Raises:
        InvalidTypeError: It is not a tensor, array, scalar or list, and has no ``__dlpack__``.
        InvalidArgumentError: The server does not support its dtype.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (list, np.generic)):
        value = _array_of(value)
    if not isinstance(value, np.ndarray):
        return Tensor.from_dlpack(value)
    if value.dtype.kind in TEXTS:
        return Tensor.from_bytes_array(value)
    data_type = DATA_TYPES.get(value.dtype.newbyteorder("="))
    if data_type is None:
        raise InvalidArgumentError(f"the server has no data type for NumPy's {value.dtype}")
    if not value.flags.c_contiguous or not value.dtype.isnative:
        value = np.array(value, value.dtype.newbyteorder("="), order="C")
    return Tensor(data_type, value.shape, MemoryBuffer.from_array(value))


def _array_of(value: Any) -> npt.NDArray[Any]:
    try:
        array = np.array(value)
        if array.dtype.kind not in TEXTS:
            return array
        # NumPy would drop NULs at the end, and would not keep bytes apart from texts.
        found = np.empty(array.shape, np.object_)
        found[...] = value if isinstance(value, list) else value[:]  # a slice is of Python's type
    except ValueError as error:  # rows of several lengths
        raise InvalidArgumentError(f"a list makes no array: {error}") from error
    return found


def _encoded(element: object) -> bytes:
    data = element.encode() if isinstance(element, str) else element
    if not isinstance(data, bytes):
        raise InvalidTypeError(f"an element is {element!r:.200}; give texts or bytes")
    return data
