"""Frames between machines: messages of ZeroMQ, with the tensors inline.

::

    server's side (ROUTER)                              worker (DEALER), one connection per model

                              <──  HELLO, JSON          who it is, and which model it answers
    WELCOME, JSON             ──>                       the model's configuration; or REFUSED, JSON
                              <──  READY, JSON          its callable is checked; how many batches it takes at a time,
                                                        and which models it calls
    frame [, data]            ──>                       a batch, or the cancellation of one
                              <──  TAKEN, number        the callable is about to get this batch
                              <──  frame [, data], progress    a reply, how long it took, and the batch that is next
    OBSERVE                   ──>                       report batches from now on
                              <──  REPORT, JSON         for metrics; see pool/batch_reports.py
                              <──  MEMORY, JSON         of its process, at first and every few seconds
                              <──  LEAVE                no further batch, please
    BYE                       ──>                       all of its batches are answered, or the model goes
                              <──  CALL, frame [, data]     a call of a model, its cancellation (CANCEL), or RELEASE: a
                                                        response of a stream was taken; see calls.py
    RESULT, frame [, data]    ──>                       of a call, an error, or a response of a stream
    PROBE                     ──>                       nothing; tells the sender whether the worker is there

    WELCOME, JSON             ──>                       with "derive": what the model's tensors are is not known yet
                              <──  DERIVED, JSON        they, as the callable has them; then BYE

A proxy on another machine is a DEALER too, and the program with the callables the ROUTER; see proxy.py and relay.py::

    program (ROUTER)                                    proxy (DEALER), one connection per model instance

                              <──  HELLO, JSON          which program and instance it wants
    WELCOME, JSON             ──>                       its worker is there; or REFUSED, JSON
                              <──  frame [, data]       a batch, a cancellation, or RELEASE: how many replies were taken
    frame [, data]            ──>                       a reply, or a question about cancelled requests
    PROBE                     ──>                       as above
                              <──  BYE                  the server lets the model go

The first part of a message is a word, or a frame of ``wire/frames.py``, which is longer. A frame holds its data, or
says that they lie in an arena from byte 0 on, which is the message's next part. Deadlines are sent as the seconds that
remain, because each machine has a clock of its own.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import zmq
from numpy.typing import NDArray

from ..wire.frames import HEADER, INLINE_LIMIT_BYTES, NO_REGION, Frame, pack, received_tensors, unpack
from ..wire.tensors import ALIGN, FrameError, Tensor, data_bytes

__all__ = [
    "LAST_NUMBER",
    "NUMBER",
    "PROGRESS",
    "PROTOCOL",
    "Parts",
    "configure",
    "decode",
    "encode",
    "encode_forwarded",
    "has_message",
    "is_frame",
    "receive",
    "send",
    "with_remaining_times",
]

PROTOCOL = 5
NUMBER = struct.Struct("<I")
LAST_NUMBER = 2**32 - 1  # of batches and of calls, which then begin again
PROGRESS = struct.Struct("<II")  # microseconds of the batch in its process; the number of the next one, or 0
HANDSHAKE_S = 5.0
MAX_PART_BYTES = 4 * 2**30
COPY_BELOW_BYTES = 64 * 1024
_DEADLINE = b'"deadline"'
# As integers, because operators of zmq's enumerations take longer than what they control.
_EVENTS, _RCVMORE, _POLLIN = int(zmq.EVENTS), int(zmq.RCVMORE), int(zmq.POLLIN)
_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)

Parts = list[Any]


def configure(connection: zmq.Socket[bytes], heartbeat_s: float) -> None:
    """Set what both sides have in common: a peer is gone if nothing has come from it for three heartbeats."""
    connection.setsockopt(zmq.LINGER, 0)
    connection.setsockopt(zmq.HANDSHAKE_IVL, int(HANDSHAKE_S * 1e3))
    connection.setsockopt(zmq.HEARTBEAT_IVL, int(heartbeat_s * 1e3))
    connection.setsockopt(zmq.HEARTBEAT_TIMEOUT, int(heartbeat_s * 2e3))
    connection.setsockopt(zmq.HEARTBEAT_TTL, int(heartbeat_s * 3e3))
    connection.setsockopt(zmq.MAXMSGSIZE, MAX_PART_BYTES)
    connection.setsockopt(zmq.SNDHWM, 0)  # credits limit what is on its way
    connection.setsockopt(zmq.RCVHWM, 0)
    connection.setsockopt(zmq.IPV6, 1)


def send(connection: zmq.Socket[bytes], parts: Parts) -> None:
    """Send a message without waiting; large arrays without a copy, so that they must not change any more.

    Raises:
        zmq.ZMQError: There is nobody to send it to.
    """
    *first, last = parts
    for part in first:
        connection.send(part, _MORE, len(part) < COPY_BELOW_BYTES)
    connection.send(last, _NOBLOCK, len(last) < COPY_BELOW_BYTES)


def has_message(connection: zmq.Socket[bytes]) -> bool:
    """Whether a message has arrived."""
    events = connection.get(_EVENTS)
    assert isinstance(events, int)
    return events & _POLLIN != 0


def receive(connection: zmq.Socket[bytes], small: int) -> Parts:
    """The parts of the message that has arrived. The first ``small`` ones are bytes, the others views.

    Raises:
        zmq.ZMQError: There is none, or the socket was closed.
    """
    parts: Parts = [connection.recv(_NOBLOCK)]
    while connection.get(_RCVMORE):
        is_small = len(parts) < small
        parts.append(connection.recv(_NOBLOCK) if is_small else connection.recv(_NOBLOCK, copy=False).buffer)
    return parts


def is_frame(part: bytes) -> bool:
    """Whether the first part of a message is a frame."""
    return len(part) >= HEADER.size


def encode(frame: Frame, tensors: Sequence[Tensor]) -> Parts:
    """The parts of a frame with this side's own tensors, which are copied."""
    if data_bytes(tensors) <= INLINE_LIMIT_BYTES:
        return [pack(frame, tensors)]
    frame.region = 0
    return [pack(frame, tensors), _laid_out(tensors)]


def encode_forwarded(frame: Frame, number: int) -> Parts:
    """The parts of a frame that a proxy has sent, with another number; its data are not copied if they are large."""
    metadata, size = frame.metadata, frame.data_bytes
    if _DEADLINE in metadata:
        metadata = _with_deadlines(metadata, -time.monotonic())
    region = NO_REGION if size <= INLINE_LIMIT_BYTES else 0
    sent = Frame(frame.kind, number, frame.requests, frame.rows, metadata, (), region, frame.more, frame.apart)
    message = pack(sent, received_tensors(frame))
    return [message] if region == NO_REGION else [message, frame.data[:size]]


def with_remaining_times(frame: Frame) -> Frame:
    """A frame of this side, with the seconds that remain in place of deadlines; the same one if it has none."""
    if _DEADLINE not in frame.metadata:
        return frame
    metadata = _with_deadlines(frame.metadata, -time.monotonic())
    return Frame(frame.kind, frame.number, frame.requests, frame.rows, metadata, more=frame.more, apart=frame.apart)


def decode(parts: Parts) -> Frame:
    """The frame of a message; its arrays may be written to if the first part can be.

    Raises:
        FrameError: It is none.
    """
    frame = unpack(memoryview(parts[0]))
    if frame.region != NO_REGION:
        if len(parts) < 2 or len(parts[1]) < frame.data_bytes:
            raise FrameError(f"a message of {len(parts)} parts has not the {frame.data_bytes} bytes of its frame")
        frame.data = np.frombuffer(parts[1], np.uint8)
    if _DEADLINE in frame.metadata:
        frame.metadata = _with_deadlines(frame.metadata, time.monotonic())
    return frame


def _with_deadlines(metadata: bytes, offset: float) -> bytes:
    """The metadata of requests, with all deadlines moved by so many seconds."""
    requests = json.loads(metadata)
    for request in requests.values():
        if isinstance(request, dict) and isinstance(request.get("deadline"), (int, float)):
            request["deadline"] += offset
    return json.dumps(requests).encode()


def _laid_out(tensors: Sequence[Tensor]) -> NDArray[np.uint8]:
    """The tensors' bytes one after the other, each padded to ALIGN."""
    data = np.empty(data_bytes(tensors), np.uint8)
    start = 0
    for item in tensors:
        at = start
        for part in item.parts:
            size = len(part) if isinstance(part, bytes) else part.nbytes
            if size:
                data[at : at + size] = np.frombuffer(part, np.uint8)
                at += size
        start += item.size + (-item.size % ALIGN)
    return data
