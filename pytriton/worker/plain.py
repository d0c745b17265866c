"""The most frequent kind of batch, answered from bytes to bytes.

It came in one piece inside its message, and is for a callable with ``@batch``, which sees nothing else of its requests.
Such messages differ in their numbers, metadata and data alone, and the replies in number and data: what was found out
about the first one holds for those that follow. :mod:`pytriton.worker.inference` answers all others, frame by frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pytriton.proxy.frames import HEADER, INLINE_LIMIT_BYTES, NO_REGION, NUMBER, REQUEST, TENSOR, Frame, pack, unpack
from pytriton.proxy.tensors import ALIGN, BYTES, FrameError, Tensor, data_bytes
from pytriton.worker.inference import Inference, Reply

__all__ = ["PlainBatches"]

MOST = 256
LONGEST_DESCRIPTION = 4096
PADDING = bytes(ALIGN)


class Reading(NamedTuple):
    """What messages of one description hold, and the replies to them.

    Attributes:
        description: It.
        size: Bytes of the data.
        inputs: The name, shape, dtype and place in the data of each.
        replies: By the names and shapes of outputs.
    """

    description: bytes
    size: int
    inputs: Sequence[tuple[str, tuple[int, ...], np.dtype[Any], int]]
    replies: dict[tuple[Any, ...], Writing]


class Writing(NamedTuple):
    """What replies of one description consist of, beside the batch's number and the outputs."""

    before_number: bytes
    after_number: bytes
    paddings: Sequence[bytes]


class PlainBatches:
    """Answers plain batches with a callable.

    Args:
        inference: Calls it.
    """

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        self._readings: dict[tuple[int, ...], Reading] = {}  # by what of the header counts

    def answer(self, message: bytearray) -> bytes | tuple[Frame, Reply] | None:
        """Answer a batch, if it is plain and one like it was learned.

        Args:
            message: Has the memory of the inputs.

        Returns:
            The reply; or if that is not plain, the batch's frame and the reply to it. None: the callable was not
            called.
        """
        callee = self._inference.whole_batch_callee()
        if callee is None:
            return None
        key, metadata = _key(message)
        reading = self._readings.get(key)
        if reading is None or not message.startswith(reading.description, HEADER.size):
            return None
        start = HEADER.size + len(reading.description) + metadata
        start += -start % ALIGN
        if start + reading.size != len(message):
            return None
        inputs = {name: np.ndarray(shape, dtype, message, start + at) for name, shape, dtype, at in reading.inputs}
        try:
            outputs = callee.answer_whole(inputs)
            reply = self._written(reading, message, outputs)
            if reply is not None:
                return reply
            frame = unpack(memoryview(message))
            return frame, self._learn_reply(reading, self._inference.reply_whole(frame, outputs), outputs)
        except BaseException as error:  # whatever the callable does, the model keeps serving
            frame = unpack(memoryview(message))
            return frame, self._inference.failed(frame, error)

    def learn(self, frame: Frame) -> None:
        """Have batches like this one answered from now on, if it is plain."""
        if frame.kind != REQUEST or frame.rows is None or frame.apart or frame.released:
            return
        if self._inference.whole_batch_callee() is None:
            return
        if frame.region != NO_REGION or not all(item.size and item.code != BYTES for item in frame.tensors):
            return
        size = sum(TENSOR.size + 8 * len(item.shape) for item in frame.tensors) + 4 * frame.requests
        if size > LONGEST_DESCRIPTION:
            return
        message = frame.data.obj
        description = bytes(message[HEADER.size : HEADER.size + size])
        names = self._inference.input_names
        try:
            arrays = [(names[item.name], frame.array(item), item.offset) for item in frame.tensors]
        except (FrameError, IndexError):  # as the answer will say
            return
        inputs = [(name, array.shape, array.dtype, at) for name, array, at in arrays]
        _put(self._readings, _key(message)[0], Reading(description, len(frame.data), inputs, {}))

    def _written(self, reading: Reading, message: bytearray, outputs: Any) -> bytes | None:
        """The reply with the outputs, if they are right at a glance, and one like it was learned."""
        key = self._kind(outputs)
        writing = None if key is None else reading.replies.get(key)
        if writing is None:
            return None
        pieces: list[Any] = [writing.before_number, message[NUMBER], writing.after_number]
        for array, padding in zip(outputs.values(), writing.paddings, strict=True):
            pieces += array, padding
        return b"".join(pieces)

    def _kind(self, outputs: Any) -> tuple[Any, ...] | None:
        """The names and shapes of outputs that have their declared dtypes and lie in C order; else None."""
        if type(outputs) is not dict:
            return None
        declared = self._inference.numbers
        key: list[Any] = []
        for name, array in outputs.items():
            known = declared.get(name)
            if known is None or type(array) is not np.ndarray or array.dtype != known[1]:
                return None
            if not array.flags.c_contiguous:
                return None
            key += name, array.shape
        return tuple(key)

    def _learn_reply(self, reading: Reading, reply: Reply, outputs: Any) -> Reply:
        key = self._kind(outputs)
        frame, tensors = reply
        size = data_bytes(tensors)
        if key is not None and size <= INLINE_LIMIT_BYTES and all(tensor.size for tensor in tensors):
            message = pack(frame, tensors)
            head, tail = message[: NUMBER.start], message[NUMBER.stop : len(message) - size]
            _put(reading.replies, key, Writing(head, tail, [_padding(tensor) for tensor in tensors]))
        return reply


def _key(message: bytearray) -> tuple[tuple[int, ...], int]:
    """What is the same in messages of one description, and the bytes of metadata."""
    if len(message) < HEADER.size:
        return (), 0
    length, kind, flags, released, _, requests, tensors, metadata, region = HEADER.unpack_from(message)
    return (len(message), length, kind, flags, released, requests, tensors, region), metadata


def _padding(tensor: Tensor) -> bytes:
    return PADDING[: -tensor.size % ALIGN]


def _put(learned: dict[Any, Any], key: Any, value: Any) -> None:
    if len(learned) >= MOST:
        learned.clear()
    learned[key] = value
