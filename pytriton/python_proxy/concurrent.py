"""Several batches at a time: ``execute`` returns at once, and responses go through senders when they arrive.

For decoupled models, which send any number of responses per request, and for ``async def`` callables, which work on
several batches at once. Four threads share the work:

    the server's   ``execute``: sends batches, and waits while the limit of batches in flight is reached, so that the
                   server queues, merges and prioritises the rest
    reader         passes replies on; while the server takes them slowly, the worker makes them slowly
    repeater       sends requests that failed together again, each alone
    watcher        notices requests that clients have cancelled

The server takes replies faster than a slow client reads them, and keeps them in memory, without limit. So streams
pause while memory is short, and fail if that lasts.
"""

from __future__ import annotations

import queue
import threading
import time
from contextlib import suppress
from functools import partial
from typing import Any

from ..wire.arena import ArenaFullError
from ..wire.channel import Channel, PeerGoneError, gone_message
from ..wire.connect import WorkerConnection
from ..wire.frames import END, LIMIT, RESPONSE, Frame, cancellation
from ..wire.tensors import BadRequestError, FrameError
from .codec import Codec, message_of, status_of
from .memory import Memory
from .pending import PendingBatch

CHECK_BYTES = 8 << 20  # of responses between two checks of the available memory
RESPONSE_BYTES = 4096  # that the server needs for each response, beside its data
PATIENCE_S = 10.0  # longest wait for memory
PAUSE_S = 0.02
LONG_WAIT_S = 0.01  # after a longer wait for a slot, a request may have been cancelled
WATCH_S = 0.1  # asking whether a request is cancelled costs the server 50 to 200 us
WATCH_SHARE = 0.1  # of the watcher's time, at most, is spent on asking
SHORT_OF_MEMORY = (
    "the stream was ended because the server's memory is short; it holds the responses that clients have not read yet"
)


class Slots:
    """A semaphore whose count may be changed while it is in use.

    Args:
        limit: How many can be acquired before one is released.
    """

    def __init__(self, limit: int) -> None:
        self._limit = self._free = limit  # below 0 after the limit was lowered
        self._changed = threading.Condition()

    def acquire(self) -> None:
        """Wait for one."""
        with self._changed:
            self._changed.wait_for(self._is_one_free)
            self._free -= 1

    def wait(self) -> float:
        """Wait until one is free; returns the seconds that it took."""
        start = time.monotonic()
        with self._changed:
            self._changed.wait_for(self._is_one_free)
        return time.monotonic() - start

    def release(self) -> None:
        """Give one back."""
        with self._changed:
            self._free += 1
            self._changed.notify_all()

    def set_limit(self, limit: int) -> None:
        """Change the count. Those that are acquired beyond a lower one are released before others are acquired."""
        with self._changed:
            self._free += limit - self._limit
            self._limit = limit
            self._changed.notify_all()

    def _is_one_free(self) -> bool:
        return self._free > 0


class ConcurrentExecutor:
    """Keeps several batches in flight.

    Args:
        limit: Maximum number of batches in flight, which the worker may change.
    """

    def __init__(self, worker: WorkerConnection, codec: Codec, limit: int) -> None:
        self._worker = worker
        self._codec = codec
        self._slots = Slots(limit)
        self._sending = threading.Lock()  # not for a reader at work: the worker may be waiting for it to read
        self._lock = threading.Lock()
        self._batches: dict[int, PendingBatch] = {}
        self._ended: Channel | None = None
        self._memory = Memory()
        self._unchecked_bytes = 0
        self._waited = False
        self._to_repeat: queue.SimpleQueue[PendingBatch | None] = queue.SimpleQueue()
        self._waiting: list[PendingBatch] = []  # those of the queue, and the one that waits for a slot
        self._closing = threading.Event()
        worker.has_reader = True
        self._start_reader(worker.channel)
        threading.Thread(target=self._repeat, name="pytriton-repeater", daemon=True).start()
        threading.Thread(target=self._watch, name="pytriton-watcher", daemon=True).start()

    def close(self) -> None:
        """Close the connection; the worker learns that no batch is in flight."""
        self._closing.set()
        self._to_repeat.put(None)
        self._worker.channel.say_goodbye()
        self._worker.channel.shutdown()

    def execute(self, requests: list[Any]) -> None:
        """Send a batch to the worker, and wait until another one may be: what comes next waits in the server."""
        batch = PendingBatch(requests, [request.get_response_sender() for request in requests], self._codec.decoupled)
        if self._waited:  # and the requests in the server
            batch.drop_cancelled()
            if batch.is_done():
                return
        self._slots.acquire()
        self._submit(batch)
        self._waited = self._slots.wait() > LONG_WAIT_S

    def _submit(self, batch: PendingBatch) -> None:
        frame = None
        try:
            with self._sending:
                frame, tensors = self._codec.encode(batch.requests)
                with self._lock:
                    self._worker.number(frame)
                    while frame.number in self._batches:  # a long stream may have a number for ever
                        self._worker.number(frame)
                    self._batches[frame.number] = batch
                before = self._worker.channel
                channel = self._worker.send(frame, tensors, partial(setattr, batch, "channel"))
                if channel is not before:
                    self._start_reader(channel)
            with self._lock:
                batch.is_sent = True
            if channel is self._ended:
                self._fail_batches(channel, "it ended")
        except PeerGoneError as error:
            self._fail_unsent(frame, batch, gone_message(error), "UNAVAILABLE")
        except BadRequestError:  # one client's; nothing was sent
            self._submit_others(batch)
        except (ArenaFullError, TypeError, ValueError) as error:
            self._fail_unsent(frame, batch, str(error))

    def _submit_others(self, batch: PendingBatch) -> None:
        """Submit a batch without those of its requests that cannot be sent."""
        batch.refuse(self._codec.refused(batch.requests))
        if batch.requests:
            self._submit(batch)
        else:
            self._slots.release()

    def _start_reader(self, channel: Channel) -> None:
        threading.Thread(target=self._read, args=(channel,), name="pytriton-reader", daemon=True).start()

    def _read(self, channel: Channel) -> None:
        reason = ""
        try:
            while True:
                channel.release(taken=self._pass_on(channel, channel.receive()))
        except PeerGoneError as error:
            reason = str(error)
        except Exception as error:  # a malformed reply: the rest of this connection cannot be trusted
            reason = f"{type(error).__name__}: {error}"
        finally:
            channel.shutdown()
            self._ended = channel
            self._fail_batches(channel, reason)
            with self._sending:  # threads that send over it fail now
                channel.close()

    def _pass_on(self, channel: Channel, reply: Frame) -> bool:
        """Send a reply's responses; whether other replies to the same batch follow."""
        if reply.kind == LIMIT:
            self._slots.set_limit(reply.number)
            return False
        batch = self._batches.get(reply.number)
        if batch is None or batch.channel is not channel or reply.requests != len(batch.requests):
            raise FrameError("the reply belongs to no batch")
        if reply.kind == RESPONSE:
            if reply.more and not self._has_memory(reply):
                batch.fail(SHORT_OF_MEMORY, "UNAVAILABLE")
            else:
                batch.send(self._codec.decode(reply), final=not reply.more)
        elif reply.kind == END:
            batch.end()
        else:
            status = status_of(reply)
            if status["isolate"]:
                for alone in batch.alone():
                    with self._lock:
                        self._waiting.append(alone)
                    self._to_repeat.put(alone)
            else:
                batch.fail(message_of(status), status["code"])
        if not reply.more:
            self._forget(reply.number)
        return reply.more

    def _has_memory(self, reply: Frame) -> bool:
        """Wait until memory is not short, if a check is due; False if that takes too long."""
        self._unchecked_bytes += len(reply.data) + RESPONSE_BYTES * reply.requests
        if self._unchecked_bytes < CHECK_BYTES:
            return True
        self._unchecked_bytes = 0
        deadline = time.monotonic() + PATIENCE_S
        while self._memory.is_short():
            if time.monotonic() > deadline:
                self._memory.accept()
                return False
            time.sleep(PAUSE_S)
        return True

    def _forget(self, number: int) -> PendingBatch | None:
        """Remove a batch from those in flight; None if it was removed before."""
        with self._lock:
            batch = self._batches.pop(number, None)
        if batch is not None:
            self._slots.release()
        return batch

    def _fail_batches(self, channel: Channel, reason: str) -> None:
        """Fail the batches that were sent over a connection that has ended."""
        with self._lock:
            lost = [number for number, batch in self._batches.items() if batch.is_sent and batch.channel is channel]
        for number in lost:
            batch = self._forget(number)
            if batch is not None:
                batch.fail(gone_message(reason), "UNAVAILABLE")

    def _fail_unsent(self, frame: Frame | None, batch: PendingBatch, message: str, code: str = "INTERNAL") -> None:
        if frame is not None and frame.number in self._batches:
            self._forget(frame.number)
        else:
            self._slots.release()
        batch.fail(message, code)

    def _repeat(self) -> None:
        while (batch := self._to_repeat.get()) is not None:
            self._slots.acquire()
            with self._lock:
                self._waiting.remove(batch)
            if batch.is_done():  # it was cancelled
                self._slots.release()
            else:
                self._submit(batch)

    def _watch(self) -> None:
        pause_s = WATCH_S
        while not self._closing.wait(pause_s):
            pause_s = self._drop_cancelled()

    def _drop_cancelled(self) -> float:
        """Answer requests that were cancelled, and tell the worker; returns the seconds until the next check."""
        start = time.monotonic()
        self._worker.channel.release(at_once=True)
        with self._lock:
            waiting = list(self._waiting)
            batches = [(number, batch) for number, batch in self._batches.items() if batch.since < start - WATCH_S]
        for batch in waiting:
            batch.drop_cancelled()
        for number, batch in batches:
            if batch.channel is None or not batch.is_sent:
                continue
            dropped = batch.drop_cancelled()
            if dropped or batch.is_done():
                with suppress(PeerGoneError):  # the reader sees it too
                    batch.channel.send(cancellation(number, len(batch.requests), dropped, batch.is_done()))
        return max(WATCH_S, (time.monotonic() - start) / WATCH_SHARE)
