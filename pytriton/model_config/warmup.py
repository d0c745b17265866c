"""Warm-up: the requests that a model's callables get before the server loads the model, and their data."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config.dtypes import from_triton_name, triton_name
from pytriton.model_config.tensor import checked_shape

__all__ = ["ModelWarmup", "WarmupInput", "generate_warmup_data", "generate_warmup_requests"]

SMALL_INTEGERS = (np.int8, np.uint8, np.int16, np.uint16)
LARGEST_INTEGER = 99  # of wider types, so that indices, counts and ids are plausible
SHORTEST_TEXT, LONGEST_TEXT = 8, 32
ALPHABET = np.frombuffer((string.ascii_letters + string.digits).encode(), "S1")


@dataclass
class WarmupInput:
    """The values of one input.

    One source is required: an array, a file, zeros or random values. Of several, the first in this order is used.

    Args:
        dtype: As of :class:`pytriton.model_config.Tensor`.
        shape: Dimensions without the batch axis, all above 0.
        zero_data: Zeros; False for booleans, and empty strings for bytes.
        random_data: Random values: 0 to 99 for integers of 32 and 64 bits, the whole range for shorter ones, [0, 1) for
            floats, 8 to 32 letters and digits for bytes.
        input_data_file: Path of a ``.npy`` file with a batch, or with one sample for all rows.
        data: The array itself, of shape ``(batch_size, *shape)``; not for warm-ups that the server makes.

    Raises:
        PyTritonBadParameterError: The dtype or the shape is not possible.
    """

    dtype: DTypeLike
    shape: Sequence[int]
    zero_data: bool = False
    random_data: bool = False
    input_data_file: str | None = None
    data: NDArray[Any] | None = field(default=None, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        self.dtype = from_triton_name(triton_name(self.dtype))
        self.shape = checked_shape(self.shape)
        if -1 in self.shape:
            raise PyTritonBadParameterError(f"shape {self.shape}: a warm-up needs sizes above 0 instead of -1")
        if isinstance(self.input_data_file, PathLike):
            self.input_data_file = str(self.input_data_file)

    @property
    def has_source(self) -> bool:
        """Whether it has a source of values."""
        return bool(self.data is not None or self.input_data_file or self.zero_data or self.random_data)


@dataclass
class ModelWarmup:
    """Some warm-up requests with equal inputs.

    Args:
        name: For the log.
        batch_size: Rows of each request; 0 or 1 for a model without batching, whose arrays have no batch axis.
        inputs: The values of each input by its name. Of inputs that are left out, optional ones are absent from the
            requests that ``bind`` makes, and others are zeros.
        count: Number of requests; 0 is 1, as in the server.

    Raises:
        PyTritonBadParameterError: ``inputs`` is not a dict of WarmupInput.
    """

    name: str
    batch_size: int
    inputs: dict[str, WarmupInput]
    count: int = 1

    def __post_init__(self) -> None:
        inputs = self.inputs
        if not isinstance(inputs, Mapping) or not all(isinstance(each, WarmupInput) for each in inputs.values()):
            raise PyTritonBadParameterError(f"inputs must be a dict from input name to WarmupInput, got {inputs!r}")
        self.inputs = dict(inputs)


def generate_warmup_data(warmup_input: WarmupInput, batch_size: int) -> NDArray[Any]:
    """The array of one input.

    Args:
        warmup_input: Its dtype, shape and source of values.
        batch_size: Rows; 0 is an array without a batch axis.

    Returns:
        Shape ``(batch_size, *shape)``, or ``shape`` for a batch size of 0. Object arrays of ``bytes`` for bytes and
        objects, as callables get them.

    Raises:
        PyTritonBadParameterError: There is no source, or the file has another array.
    """
    if warmup_input.data is not None:
        return warmup_input.data.copy()
    kind = from_triton_name(triton_name(warmup_input.dtype))
    shape = (batch_size, *warmup_input.shape) if batch_size else tuple(warmup_input.shape)
    if warmup_input.input_data_file:
        return _from_file(warmup_input.input_data_file, shape, tuple(warmup_input.shape), kind)
    if warmup_input.zero_data:
        return _filled(shape, lambda: b"") if _is_text(kind) else np.zeros(shape, kind)
    if warmup_input.random_data:
        return np.asarray(_random(shape, kind))  # without dimensions, NumPy returns a scalar
    raise PyTritonBadParameterError("a warm-up input has no data; set zero_data, random_data or input_data_file")


def generate_warmup_requests(
    model_warmup: ModelWarmup | Sequence[ModelWarmup],
    input_specs: Sequence[Any] | None,
    outputs_specs: Sequence[Any] | None = None,
    *,
    batching: bool = True,
) -> list[dict[str, NDArray[Any]]]:
    """The inputs of each request: ``count`` of them for each :class:`ModelWarmup`.

    Args:
        input_specs: The model's inputs: any objects with a ``name``. The arrays have their order.
        outputs_specs: Not used; requests ask for all outputs.
        batching: Whether the model's tensors have a batch axis.

    Raises:
        PyTritonBadParameterError: As :func:`generate_warmup_data`; or the model has no input of that name.
    """
    requests = []
    for warmup in [model_warmup] if isinstance(model_warmup, ModelWarmup) else model_warmup:
        names = [spec.name for spec in input_specs or ()]
        if unknown := sorted(warmup.inputs.keys() - {*names}):
            raise PyTritonBadParameterError(
                f"warm-up {warmup.name!r}: {unknown} are no inputs of the model; it has {names}"
            )
        for _ in range(warmup.count or 1):
            rows = warmup.batch_size if batching else 0
            present = [name for name in names if name in warmup.inputs]
            requests.append({name: generate_warmup_data(warmup.inputs[name], rows) for name in present})
    return requests


def _is_text(kind: type[np.generic]) -> bool:
    return kind is np.bytes_


def _random(shape: tuple[int, ...], kind: type[np.generic]) -> NDArray[Any]:
    generator = np.random.default_rng()
    if _is_text(kind):
        return _filled(
            shape, lambda: generator.choice(ALPHABET, generator.integers(SHORTEST_TEXT, LONGEST_TEXT + 1)).tobytes()
        )
    if kind is np.bool_:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if issubclass(kind, np.floating):
        # float16 rounds values just below 1 to 1
        return np.minimum(generator.random(shape), 1 - np.finfo(kind).eps).astype(kind)
    if kind in SMALL_INTEGERS:
        limits = np.iinfo(kind)
        return generator.integers(limits.min, limits.max, shape, kind, endpoint=True)
    return generator.integers(0, LARGEST_INTEGER, shape, endpoint=True).astype(kind)


def _filled(shape: tuple[int, ...], value: Callable[[], bytes]) -> NDArray[np.object_]:
    array = np.empty(shape, object)
    for index in np.ndindex(shape):
        array[index] = value()
    return array


def _from_file(path: str, shape: tuple[int, ...], sample: tuple[int, ...], kind: type[np.generic]) -> NDArray[Any]:
    try:
        # Loading an object array unpickles it, which can run code from the file.
        array: NDArray[Any] = np.load(path, allow_pickle=False)
        array = _as_texts(array) if _is_text(kind) else array.astype(kind)
    except (OSError, ValueError, TypeError, EOFError) as error:
        raise PyTritonBadParameterError(
            f"input_data_file {path} cannot be read as .npy of {kind.__name__}: {error}; write texts as bytes arrays"
        ) from error
    if len(shape) > len(sample):
        array = array[np.newaxis] if array.shape == sample else array
        if array.ndim == len(shape) and len(array):
            array = np.resize(array, (shape[0], *array.shape[1:]))
    if array.shape != shape:
        raise PyTritonBadParameterError(f"input_data_file {path} has shape {array.shape}, expected {shape}")
    return array


def _as_texts(array: NDArray[Any]) -> NDArray[np.object_]:
    encoded = np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array
    return encoded.astype(np.bytes_).astype(object)
