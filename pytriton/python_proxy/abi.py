"""Corrects tensors of Triton 2.51's Python backend under NumPy 2, and avoids copies of inputs.

The backend's stub was compiled with a pybind11 that knows NumPy 1's array descriptors: it reads the item size at an
offset where NumPy 2 keeps flags, so that every item size is 0. Inputs then come with strides of 0 (each element is the
first), and outputs with 0 bytes. Two changes within the stub's process correct this:

- pybind11 takes NumPy's C functions from a table. It gets a copy in which ``PyArray_NewFromDescr`` ignores the
  strides it is given, and makes C-contiguous arrays, which is what all of the stub's are.
- ``Tensor.__init__`` passes the stub a view of its array with a descriptor of its own. While the stub reads it, the
  descriptor's flags hold the item size. No other array has this descriptor, so no other code sees these flags.

The proxies call :func:`adapt`, for servers that run elsewhere. Where we launch the server,
:mod:`pytriton.server.backends` has every stub call it before the stub imports the model.

pybind11 also copies each input, since it does not know the owner of the server's shared memory. :func:`lend_inputs`
avoids that, through the same table.

With any NumPy, the stub renames a capsule of DLPack that it takes, and NumPy does not recognise the new name.
NumPy's destructor then fails again and again, and the stub hangs: :func:`adapt` gives the capsule the right name.

With any NumPy, the stub dies of an input that NumPy cannot hold, such as one of shape ``[1, 2**61]``, which the server
lets through because its own product of the extents overflows. Such an input arrives as an array of
:data:`IMPOSSIBLE_SHAPE` instead, for the model to refuse.

The layouts are part of NumPy's public C API (``_PyArray_DescrNumPy2``, ``PyArray_API``) and are checked before use.
"""

from __future__ import annotations

import ctypes
import importlib
import struct
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

IS_NUMPY_2 = np.lib.NumpyVersion(np.__version__) >= "2.0.0"
MARK = "pytriton_adapted"  # set in the module that models import, which several copies of this file may adapt
FLAGS_OFFSET = 32  # where the stub looks for the item size
ITEM_SIZE_OFFSET = 40  # where NumPy 2 has it
TABLE_LENGTH = 300  # pybind11 uses no later entry
NEW_COPY = 85
NEW_FROM_DESCR = 94
DTYPES = [
    np.dtype(name)
    for name in (
        "bool",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
    )
]
NUMBERS = frozenset(DTYPES)
STRINGS = "OS"  # kinds of dtypes of BYTES tensors, which the stub asks Python to serialize
IMPOSSIBLE_SHAPE = (0,) * 32  # no model has so many axes; NumPy 1 allows no more
DLPACK_CPU = 1  # the type of a device
DLPACK_NAME, DLPACK_TAKEN = b"dltensor", b"used_dltensor"  # of a capsule; NumPy keeps the address of the name

NewFromDescr = ctypes.PYFUNCTYPE(
    ctypes.c_void_p,
    ctypes.c_void_p,  # array type
    ctypes.c_void_p,  # descriptor
    ctypes.c_int,  # rank
    ctypes.c_void_p,  # shape
    ctypes.c_void_p,  # strides
    ctypes.c_void_p,  # data
    ctypes.c_int,  # flags
    ctypes.c_void_p,  # parent object
)


def adapt(pb_utils: Any, tensor: Any) -> None:
    """Correct the stub's tensors in both directions. Call it before the stub has made any; a second call does nothing.

    Args:
        pb_utils: The module ``triton_python_backend_utils``.
        tensor: The stub's class ``Tensor``, which is changed in place.

    Raises:
        RuntimeError: The stub cannot be adapted to the memory layout of this NumPy, or must not be and needs it.
    """
    if hasattr(pb_utils, MARK):
        return
    if IS_NUMPY_2:
        check_layout()
        tensor.__init__ = _constructor(pb_utils, tensor.__init__)
    _make_arrays_safe()
    _make_strings_safe(pb_utils)
    _make_capsules_safe(tensor)
    setattr(pb_utils, MARK, True)


def check_layout() -> None:
    """Check that descriptors have the layout that NumPy 2 documents.

    Raises:
        RuntimeError: They are not.
    """
    for dtype in DTYPES:
        descriptor = Descriptor(dtype)
        item_size = ctypes.c_ssize_t.from_address(id(descriptor.dtype) + ITEM_SIZE_OFFSET).value
        if descriptor.dtype is dtype or item_size != dtype.itemsize or descriptor.flags.value != dtype.flags:
            raise RuntimeError(
                f"the server's Python backend was built for NumPy 1 and cannot be adapted to NumPy {np.__version__}: "
                "its models would get wrong arrays. Install numpy<2 in the environment that they run in"
            )


class Descriptor:
    """A private copy of a dtype, which shows the stub its item size while entered as a context."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = np.dtype(dtype, copy=True)
        self.flags = ctypes.c_uint32.from_address(id(self.dtype) + FLAGS_OFFSET)

    def __enter__(self) -> None:
        self.flags.value = self.dtype.itemsize

    def __exit__(self, *_: object) -> None:
        self.flags.value = 0


def _constructor(pb_utils: Any, construct: Callable[[Any, str, NDArray[Any]], None]) -> Any:
    """The ``__init__`` of the stub's tensors that goes before the stub's own, ``construct``."""
    serialize = pb_utils.serialize_byte_tensor
    shown = threading.local()  # the descriptor for the bytes of the tensor that this thread constructs

    def serialize_byte_tensor(input_tensor: NDArray[Any]) -> Any:
        descriptor = getattr(shown, "descriptor", None)
        if descriptor is None:  # a model calls it, not the stub
            return serialize(input_tensor)
        try:
            encoded = interleave(input_tensor)
        except TypeError:  # not only bytes
            encoded = serialize(input_tensor)
        return np.ndarray(len(encoded), descriptor.dtype, encoded)

    def __init__(self: Any, name: str, array: NDArray[Any]) -> None:
        if isinstance(array, np.ndarray) and array.dtype.kind in STRINGS:
            descriptor = shown.descriptor = Descriptor(np.dtype(np.uint8))
        elif isinstance(array, np.ndarray) and array.dtype in NUMBERS:
            descriptor = Descriptor(array.dtype)
            array = np.ndarray(array.shape, descriptor.dtype, np.ascontiguousarray(array))
        else:
            construct(self, name, array)  # the stub refuses it
            return
        try:
            with descriptor:
                construct(self, name, array)
        finally:
            shown.descriptor = None

    pb_utils.serialize_byte_tensor = serialize_byte_tensor
    return __init__


def interleave(strings: NDArray[np.object_]) -> bytes:
    """Triton's form of a BYTES tensor: each element's u32 length, then its bytes."""
    length = struct.Struct("<I").pack
    return b"".join([piece for string in strings.ravel().tolist() for piece in (length(len(string)), string)])


def lend_inputs() -> None:
    """Make ``as_numpy()`` return views of the server's memory instead of copies. Call it before the stub has made any.

    The views are valid, at any alignment, until ``execute`` returns. A model that keeps its inputs, or passes them to
    code that may keep them, must copy them.
    """
    # Instead of PyArray_NewCopy(array, order): a function that returns a new reference to its first argument.
    _replace_functions({NEW_COPY: ctypes.cast(ctypes.pythonapi.Py_NewRef, ctypes.c_void_p).value})


class _Strings(np.ndarray[Any, Any]):
    """The elements of a BYTES tensor, which the stub is going to reshape."""

    def reshape(self, *shape: Any, **options: Any) -> Any:
        try:
            return self.view(np.ndarray).reshape(*shape, **options)
        except ValueError:
            return np.empty(IMPOSSIBLE_SHAPE, object)


def _make_strings_safe(pb_utils: Any) -> None:
    deserialize = pb_utils.deserialize_bytes_tensor
    pb_utils.deserialize_bytes_tensor = lambda encoded: deserialize(encoded).view(_Strings)


def _make_capsules_safe(tensor: Any) -> None:
    """Make ``Tensor.from_dlpack`` accept all C-ordered arrays of NumPy, and leave capsules as NumPy expects them.

    NumPy 2 exports strides where NumPy 1 exported none, and the stub takes those of empty arrays for another order.
    """
    take = tensor.from_dlpack
    capsule = type(_multiarray()._ARRAY_API)
    prototype = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
    is_valid = prototype(("PyCapsule_IsValid", ctypes.pythonapi))
    rename = prototype(("PyCapsule_SetName", ctypes.pythonapi))

    def from_dlpack(name: str, source: Any) -> Any:
        if isinstance(source, np.ndarray) and source.dtype in NUMBERS and source.flags.c_contiguous:
            return tensor(name, source)  # which copies as often
        is_on_cpu = hasattr(source, "__dlpack_device__") and source.__dlpack_device__()[0] == DLPACK_CPU
        taken = source.__dlpack__() if is_on_cpu else source
        try:
            return take(name, taken)
        finally:
            if isinstance(taken, capsule) and not is_valid(taken, DLPACK_NAME):
                rename(taken, DLPACK_TAKEN)

    tensor.from_dlpack = staticmethod(from_dlpack)


def _make_arrays_safe() -> None:
    """Make pybind11 survive shapes that NumPy refuses and, under NumPy 2, create C-contiguous arrays.

    NumPy 1's strides are right, and the table may be that of other extensions, which ask for arrays in another order.
    """
    original = NewFromDescr(_functions()[NEW_FROM_DESCR] or 0)

    def safe(kind: int, descr: int, rank: int, shape: int, strides: int, data: int, flags: int, parent: int) -> Any:
        try:
            return original(kind, descr, rank, shape, None if IS_NUMPY_2 else strides, data, flags, parent)
        except ValueError:
            array = np.empty(IMPOSSIBLE_SHAPE, np.uint8)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(array))  # the caller's
            return id(array)

    replacement = NewFromDescr(safe)
    _KEEP.extend([replacement, original])
    _replace_functions({NEW_FROM_DESCR: ctypes.cast(replacement, ctypes.c_void_p).value})


def _functions() -> ctypes.Array[ctypes.c_void_p]:
    """The table of NumPy's functions that pybind11 is going to use."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer(_multiarray()._ARRAY_API, None)
    assert address is not None
    return (ctypes.c_void_p * TABLE_LENGTH).from_address(address)


def _replace_functions(replacements: dict[int, int | None]) -> None:
    """Give pybind11 a copy of the table with other functions."""
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    table = (ctypes.c_void_p * TABLE_LENGTH)(*_functions())
    for index, function in replacements.items():
        table[index] = function
    _KEEP.append(table)
    _multiarray()._ARRAY_API = capsule(ctypes.addressof(table), None, None)


def _multiarray() -> Any:
    return importlib.import_module("numpy.core.multiarray")  # by the name that pybind11 uses


_KEEP: list[Any] = []  # referenced from C for as long as the process lives
