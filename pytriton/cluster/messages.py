"""Frames between machines: messages of ZeroMQ, with the tensors inline.

::

    server's side (ROUTER)                              worker (DEALER), one connection per model

                              <──  HELLO, JSON          who it is, and which model it answers
    WELCOME, JSON             ──>                       the model's configuration; or REFUSED, text
                              <──  READY, JSON          its callable is checked
    FRAME, header, data       ──>                       a batch, or the cancellation of one
                              <──  TAKEN, number        the callable is about to get it
                              <──  FRAME, header, data  replies
                              <──  LEAVE                no further batch, please
    BYE                       ──>                       all of its batches are answered, or the model goes
    PROBE                     ──>                       nothing; tells the sender whether the worker is there

The header is a frame of ``frames.py`` without data, as if the data lay in an arena at byte 0; the data is the message's
next part. Deadlines are sent as the seconds that remain, because each machine has a clock of its own.
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

from pytriton.wire.frames import Frame, pack, unpack
from pytriton.wire.tensors import ALIGN, FrameError, Tensor, data_bytes

__all__ = [
    *("BYE", "FRAME", "HELLO", "LEAVE", "PROBE", "READY", "REFUSED", "TAKEN", "WELCOME"),
    *("NUMBER", "PROTOCOL", "Parts", "configure", "decode", "encode", "lay_out", "tensors_to_forward"),
]

PROTOCOL = 1
HELLO, WELCOME, REFUSED, READY, FRAME, TAKEN, LEAVE, BYE, PROBE = (
    *(b"hello", b"welcome", b"refused", b"ready"),
    *(b"frame", b"taken", b"leave", b"bye", b"probe"),
)
NUMBER = struct.Struct("<I")
HANDSHAKE_S = 5.0
MAX_PART_BYTES = 4 * 2**30
_DEADLINE = b'"deadline"'

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


def encode(frame: Frame, number: int, tensors: Sequence[Tensor], data: Any) -> Parts:
    """The parts of a message of kind FRAME.

    Args:
        frame: What to send.
        number: Of the batch, in place of the frame's.
        tensors: Of the frame; their ``parts`` are not used.
        data: Their bytes, each tensor padded to ALIGN. Must not change until the message is sent.
    """
    metadata = frame.metadata
    if _DEADLINE in metadata:
        metadata = _with_deadlines(metadata, -time.monotonic())
    copy = Frame(frame.kind, number, frame.requests, frame.rows, metadata, (), 0, frame.more, frame.apart)
    return [FRAME, pack(copy, tensors), data]


def decode(parts: Sequence[zmq.Frame]) -> Frame:
    """The frame of a message of kind FRAME.

    Raises:
        FrameError: It is none.
    """
    if len(parts) != 3:
        raise FrameError(f"a message of {len(parts)} parts is no frame")
    frame = unpack(memoryview(parts[1].bytes))
    if len(parts[2].buffer) < frame.data_bytes:
        raise FrameError(f"a message has {len(parts[2].buffer)} of {frame.data_bytes} bytes of data")
    frame.data = np.frombuffer(parts[2].buffer, np.uint8)
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


def tensors_to_forward(frame: Frame) -> list[Tensor]:
    """The tensors of a received frame, to be sent on without a copy of their data."""
    return [
        Tensor(name, request, code, shape, size, (frame.data[offset : offset + size],))
        for name, request, code, shape, offset, size, _ in frame.tensors
    ]


def lay_out(tensors: Sequence[Tensor]) -> NDArray[np.uint8]:
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
