"""The most frequent kind of batch, answered from bytes to bytes.

It came in one piece inside its message, and is for a callable with ``@batch``, which sees nothing else of its requests.
Such messages differ in their numbers, metadata and data alone, and the replies in number and data: what was found out
about the first one holds for those that follow. :mod:`pytriton.worker.inference` answers all others, frame by frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pytriton.proxy.frames import (
    COUNTS,
    HEADER,
    INLINE_LIMIT_BYTES,
    NO_REGION,
    NUMBER,
    REGION,
    REQUEST,
    TENSOR,
    Frame,
    pack,
    unpack,
)
from pytriton.proxy.tensors import ALIGN, BYTES, FrameError, data_bytes
from pytriton.worker.inference import Inference, Reply

__all__ = ["PlainBatches"]

MOST = 256
LONGEST_DESCRIPTION = 4096
PADDING = bytes(ALIGN)


@dataclass(slots=True)
class Reading:
    """What messages of one description hold, and the replies to them.

    Attributes:
        length: Bytes of such a message.
        beginning: How it begins, up to its number.
        counts: Those of requests and tensors in it.
        description: The rest, up to metadata: the region, and what is said of tensors and requests.
        inputs: The name, shape, dtype and place in the message of each.
        replies: By the names and shapes of outputs.
        last: The one of these that was written last.
    """

    length: int
    beginning: bytes
    counts: bytes
    description: bytes
    inputs: Sequence[tuple[str, tuple[int, ...], np.dtype[Any], int]]
    replies: dict[tuple[Any, ...], Writing]
    last: Writing | None = None

    def fits(self, message: bytearray) -> bool:
        """Whether a message is of this description; its number and metadata may be any."""
        return (
            len(message) == self.length
            and message.startswith(self.beginning)
            and message.startswith(self.counts, COUNTS.start)
            and message.startswith(self.description, REGION)
        )


class Writing(NamedTuple):
    """What replies of one description consist of, beside the batch's number and the outputs.

    Attributes:
        before_number: Comes first.
        after_number: Comes before the outputs.
        outputs: The name, shape and dtype of each, and what follows it.
    """

    before_number: bytes
    after_number: bytes
    outputs: Sequence[tuple[str, tuple[int, ...], np.dtype[Any], bytes]]


class PlainBatches:
    """Answers plain batches with a callable.

    Args:
        inference: Calls it.
    """

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        self._readings: dict[tuple[int, ...], Reading] = {}  # by what of the header counts
        self._last: Reading | None = None

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
        reading = self._last
        if reading is None or not reading.fits(message):
            reading = self._readings.get(_key(message))
            if reading is None or not reading.fits(message):
                return None
            self._last = reading
        inputs = {}
        for name, shape, dtype, at in reading.inputs:
            inputs[name] = np.ndarray(shape, dtype, message, at)
        try:
            outputs = callee.answer_whole(inputs)
            if reading.last is not None:
                reply = _filled(reading.last, message, outputs)
                if reply is not None:
                    return reply
            return self._other(reading, message, outputs)
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
        description = bytes(message[REGION : HEADER.size + size])
        begin = len(message) - len(frame.data)
        names = self._inference.input_names
        try:
            arrays = [(names[item.name], frame.array(item), begin + item.offset) for item in frame.tensors]
        except (FrameError, IndexError):  # as the answer will say
            return
        inputs = [(name, array.shape, array.dtype, at) for name, array, at in arrays]
        beginning, counts = bytes(message[: NUMBER.start]), bytes(message[COUNTS])
        _put(self._readings, _key(message), Reading(len(message), beginning, counts, description, inputs, {}))

    def _other(self, reading: Reading, message: bytearray, outputs: Any) -> bytes | tuple[Frame, Reply]:
        """A reply that is not like the last one."""
        key = self._kind(outputs)
        reading.last = None if key is None else reading.replies.get(key)
        reply = None if reading.last is None else _filled(reading.last, message, outputs)
        if reply is not None:
            return reply
        frame = unpack(memoryview(message))
        return frame, self._learn_reply(reading, self._inference.reply_whole(frame, outputs), outputs)

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
            written = [
                (name, array.shape, array.dtype, PADDING[: -item.size % ALIGN])
                for (name, array), item in zip(outputs.items(), tensors, strict=True)
            ]
            _put(reading.replies, key, Writing(head, tail, written))
        return reply


def _key(message: bytearray) -> tuple[int, ...]:
    """What is the same in messages of one description."""
    if len(message) < HEADER.size:
        return ()
    length, kind, flags, released, _, requests, tensors, _, region = HEADER.unpack_from(message)
    return len(message), length, kind, flags, released, requests, tensors, region


def _filled(writing: Writing, message: bytearray, outputs: Any) -> bytes | None:
    """The reply to a message with the outputs, if they are such."""
    if type(outputs) is not dict or len(outputs) != len(writing.outputs):
        return None
    pieces: list[Any] = [writing.before_number, message[NUMBER], writing.after_number]
    for name, shape, dtype, padding in writing.outputs:
        array = outputs.get(name)
        if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype:
            return None
        if not array.flags.c_contiguous:
            return None
        pieces.append(array)
        if padding:
            pieces.append(padding)
    return b"".join(pieces)


def _put(learned: dict[Any, Any], key: Any, value: Any) -> None:
    if len(learned) >= MOST:
        learned.clear()
    learned[key] = value
