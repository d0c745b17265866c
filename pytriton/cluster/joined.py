"""A proxy on another machine that has joined: its batches go to the socket of a model instance, and replies back."""

from __future__ import annotations

import json
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from pytriton import forks
from pytriton.cluster.messages import REFUSED, WELCOME, Parts, encode_forwarded, tensors_to_forward
from pytriton.wire.arena import ArenaFullError
from pytriton.wire.channel import Channel, PeerGoneError, UnreadError
from pytriton.wire.connect import connect
from pytriton.wire.connection import WorkerConnection
from pytriton.wire.frames import ASK, CANCEL, ERROR, NO_REGION, RELEASE, REQUEST, Frame
from pytriton.wire.tensors import FrameError

__all__ = ["Joined"]


@dataclass(eq=False)
class Batch:
    """A batch whose last reply the proxy has not got yet."""

    frame: Frame
    channel: Channel | None = None
    sent: bool = False  # until then, it may still be sent over another channel
    read: bool = False  # the worker has asked about it


class Joined:
    """Forwards the frames of one proxy. Looks at no tensor.

    A thread connects to the instance and sends it batches, for which it may have to wait; another one reads replies.

    Args:
        path: Of the instance's socket.
        hello: What the proxy told: ``model``, ``instance``, and ``serial`` if it waits for each reply.
        reply: Sends a message to the proxy, from any thread.
    """

    def __init__(self, path: str, hello: dict[str, Any], reply: Callable[[Parts], None]) -> None:
        self._path = path
        self._told = {"model": str(hello["model"]), "instance": str(hello["instance"])}
        self._is_serial = bool(hello["serial"])
        self._reply = reply
        self._waiting: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._sending = threading.Lock()
        self._lock = threading.Lock()
        self._batches: dict[int, Batch] = {}
        self._channels: set[Channel] = set()
        self._streamed: deque[Channel] = deque()  # that replies came from which the proxy has not taken yet
        self._end: tuple[Channel, str, str, bool] | None = None  # the channel that has ended last, and how
        self._closed = self._is_dismissed = False
        threading.Thread(target=self._run, name="pytriton-forward", daemon=True).start()

    def after_fork(self) -> None:
        """In a forked child, drop the connections."""
        forks.abandon(*(channel.fileno() for channel in self._channels))

    # For the relay's thread:

    def take(self, frame: Frame) -> None:
        """Take what the proxy has sent. Does not wait."""
        if frame.kind != RELEASE:
            self._waiting.put(frame)
            return
        for _ in range(min(frame.number, len(self._streamed))):
            self._streamed.popleft().release(taken=True)

    def release(self) -> None:
        """Tell the worker of the memory that its replies need no more; to be called now and then."""
        if not self._is_serial:  # else what is unread at a worker's end would not always be a batch
            for channel in self._open_channels():
                channel.release(at_once=True)

    def close(self, dismissed: bool) -> None:
        """End the connections to the worker; with ``dismissed``, the server has let the model go."""
        with self._lock:
            self._closed, self._is_dismissed = True, dismissed
        for channel in self._open_channels():
            self._shut_down(channel)
        self._waiting.put(None)

    def _open_channels(self) -> list[Channel]:
        with self._lock:
            return [*self._channels]

    def _shut_down(self, channel: Channel) -> None:
        if self._is_dismissed:
            channel.say_goodbye()
        channel.shutdown()

    # On the thread that sends:

    def _run(self) -> None:
        try:
            worker = WorkerConnection(partial(connect, self._path, self._told))
        except (PeerGoneError, OSError) as error:
            self._reply([REFUSED, json.dumps(str(error)).encode()])
            return
        worker.has_reader = True
        self._start_reader(worker.channel)
        self._reply([WELCOME, b"{}"])
        while (frame := self._waiting.get()) is not None:
            if frame.kind == REQUEST:
                self._send(worker, frame)
            elif frame.kind == CANCEL:
                self._cancel(frame)

    def _send(self, worker: WorkerConnection, frame: Frame) -> None:
        batch = Batch(frame)
        with self._lock:
            self._batches[frame.number] = batch
        frame.region = NO_REGION
        try:
            with self._sending:
                before = worker.channel
                channel = worker.send(frame, tensors_to_forward(frame), partial(setattr, batch, "channel"))
                if channel is not before:
                    self._start_reader(channel)
            with self._lock:
                batch.sent = True
            if self._end is not None and channel is self._end[0]:
                self._lose(*self._end)
        except (PeerGoneError, OSError) as error:
            self._fail(frame, _gone(error), "UNAVAILABLE")
        except (ArenaFullError, FrameError) as error:
            self._fail(frame, f"{type(error).__name__}: {error}", "INTERNAL")

    def _cancel(self, frame: Frame) -> None:
        batch = self._batches.get(frame.number)
        if batch is not None and batch.channel is not None:
            with suppress(PeerGoneError), self._sending:
                batch.channel.send(Frame(CANCEL, frame.number, frame.requests, metadata=frame.metadata))

    def _start_reader(self, channel: Channel) -> None:
        with self._lock:
            self._channels.add(channel)
            if self._closed:
                self._shut_down(channel)
        threading.Thread(target=self._read, args=(channel,), name="pytriton-back", daemon=True).start()

    def _fail(self, frame: Frame, message: str, code: str) -> None:
        with self._lock:
            batch = self._batches.pop(frame.number, None)
        if batch is not None:
            status = json.dumps({"message": message, "code": code, "isolate": False}).encode()
            self._reply(encode_forwarded(Frame(ERROR, 0, frame.requests, metadata=status), frame.number))

    # On the threads that read:

    def _read(self, channel: Channel) -> None:
        message, code, unread = "", "UNAVAILABLE", False
        try:
            while True:
                self._pass_on(channel, channel.receive())
        except PeerGoneError as error:
            message, unread = _gone(error), isinstance(error, UnreadError)
        except Exception as error:  # a malformed reply: the rest of this connection cannot be trusted
            message, code = f"{type(error).__name__}: {error}", "INTERNAL"
        finally:
            channel.shutdown()
            self._end = channel, message, code, unread
            self._lose(*self._end)
            with self._sending, self._lock:  # threads that send over it fail now
                self._channels.discard(channel)
                channel.close()

    def _pass_on(self, channel: Channel, reply: Frame) -> None:
        batch = self._batches.get(reply.number)
        if batch is None or batch.channel is not channel:
            raise FrameError("the reply belongs to no batch")
        if reply.kind == ASK:
            batch.read = True
        elif reply.more:
            self._streamed.append(channel)
        else:
            with self._lock:
                del self._batches[reply.number]
        self._reply(encode_forwarded(reply, reply.number))

    def _lose(self, channel: Channel, message: str, code: str, unread: bool) -> None:
        """Fail the batches of a channel that has ended; one that the worker has not read goes to the next worker."""
        with self._lock:
            lost = [batch for batch in self._batches.values() if batch.sent and batch.channel is channel]
        for batch in lost:
            if unread and self._is_serial and not batch.read:
                self._waiting.put(batch.frame)
            else:
                self._fail(batch.frame, message, code)


def _gone(reason: object) -> str:
    return f"the inference callable's process is gone: {reason}"
