"""Records requests: chooses some of a batch as it arrives, keeps what the worker gets and answers, and makes records.

What the chosen requests have is copied when they arrive, because a callable may change its inputs, and each response
before it is sent. The rest happens on another thread, behind a bounded queue: a recording loses requests, but holds
none up. Requests of one batch stay together in all of this, if their tensors do, so that many small ones cost little.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from math import prod
from typing import Any

from pytriton.constants import GRPC_PREFIX
from pytriton.model_config import Recording
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.recording.format import COLUMNS, MOST_ARRAYS, Group, requests_in
from pytriton.recording.groups import Call, Message, State, combined, grouped, sizes_of
from pytriton.recording.writer import Outbox
from pytriton.wire.frames import RESPONSE, SEQUENCE_END, SEQUENCE_START, Frame, received_tensors
from pytriton.wire.tensors import Tensor
from pytriton.worker.interfaces import BatchObserver
from pytriton.worker.requests import public_parameters

__all__ = ["NumberedRecording", "Recorder", "RecordingStatus"]

SECRETS = frozenset(["authorization", "cookie", "proxy-authorization", "triton-access-token", "x-api-key"])
LONGEST_GAP = 2.0**53
MOST_EXTENT = 2**31  # of a tensor without data
SMALL_BYTES = 16 * 1024  # it is cheaper to copy all than to choose rows
DRAW_BYTES = 6  # as many as a float has without rounding


@dataclass(frozen=True)
class NumberedRecording:
    """What all workers of a model are told of one recording.

    Attributes:
        number: Tells it from the others of an :class:`pytriton.worker.observation.Observation`.
        salt: Decides, with its id, whether a sequence is recorded, so that all workers choose the same ones.
    """

    number: int
    recording: Recording
    salt: bytes = field(default_factory=lambda: os.urandom(16))


@dataclass(frozen=True)
class RecordingStatus:
    """What a recording has come to.

    Attributes:
        path: Of its newest file.
        recorded: Requests in its files, of which older files may be deleted by now.
        dropped: Requests that it has lost, because they came faster than they could be written, or the disk is full;
            and those of an earlier recording that worker processes sent after its end.
        too_large: Requests that were larger than ``record_bytes``.
        bytes: All that was written.
    """

    path: str
    recorded: int = 0
    dropped: int = 0
    too_large: int = 0
    bytes: int = 0


class Recorder:
    """Records the requests of one model in this process.

    Args:
        write, on_close: Of its :class:`pytriton.recording.writer.Outbox`.

    Attributes:
        is_stopped: Whether no more requests are chosen.
    """

    def __init__(
        self,
        config: TritonModelConfig,
        numbered: NumberedRecording,
        write: Callable[[list[bytes], int, int], object],
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.is_stopped = False
        self.numbered, self.recording = numbered, numbered.recording
        self.left_out = frozenset(self.recording.without)
        self.left_out_parameters = frozenset(name.lower() for name in self.left_out)
        self.inputs = [spec.name for spec in config.inputs or ()]
        self.outputs = [spec.name for spec in config.outputs or ()]
        details = {
            "model": config.model_name,
            "version": config.model_version,
            "is_streamed": config.decoupled,
            "lacks_inputs": not self.left_out.isdisjoint(self.inputs),
        }
        combine = partial(combined, details)
        self._random = random.Random()  # as the model's own code may set the seed of the other one
        self._passed_over = self._gap() if numbered.recording.share < 1 else 0
        self.outbox = Outbox(combine, write, f"pytriton-record-{config.model_name}", on_close)

    def status(self) -> RecordingStatus:
        """What has come of it so far. Thread-safe."""
        return RecordingStatus(str(self.recording.path), **self.outbox.counts())

    def stop(self) -> None:
        """Choose no more requests; those that were chosen are still taken, until :meth:`close`."""
        self.is_stopped = True

    def close(self) -> None:
        """Write what is waiting, and end. Batches that are not answered yet are not recorded."""
        self.outbox.close()

    def sample(self, frame: Frame) -> BatchRecord | None:
        """What observes a batch that has just arrived; None if none of its requests is chosen. Raises nothing."""
        if self.is_stopped:
            return None
        chosen: Sequence[int] = ()
        try:
            chosen = self._choose(frame)
            return BatchRecord(self, frame, chosen) if chosen else None
        except Exception as error:  # such as of what a client sent that makes no sense, and fails elsewhere
            self.outbox.lose(len(chosen), error)
            return None

    def _choose(self, frame: Frame) -> Sequence[int]:
        share = self.recording.share
        if share == 1:
            return range(frame.requests)
        if b'"sequence"' not in frame.metadata:
            return self._choose_some(frame.requests)
        entries = json.loads(frame.metadata)
        return [index for index in range(frame.requests) if self._draw(entries.get(str(index), {})) < share]

    def _choose_some(self, requests: int) -> Sequence[int]:
        """Each with the same probability, by how many are passed over before the next one: often one draw is enough.

        Two threads may use the same number, which is as random.
        """
        chosen = []
        index = self._passed_over
        while index < requests:
            chosen.append(index)
            index += 1 + self._gap()
        self._passed_over = index - requests
        return chosen

    def _gap(self) -> int:
        """How many requests are passed over before the next one."""
        return int(min(math.log(1.0 - self._random.random()) / math.log1p(-self.recording.share), LONGEST_GAP))

    def _draw(self, entry: Mapping[str, Any]) -> float:
        """A random number from 0 to 1, of which all requests of a sequence have the same."""
        if "sequence" not in entry:
            return self._random.random()
        name = json.dumps(entry["sequence"][0]).encode()
        drawn = blake2b(name, digest_size=DRAW_BYTES, key=self.numbered.salt).digest()
        return int.from_bytes(drawn, "little") / (1 << 8 * DRAW_BYTES)

    def take(self, number: int, records: list[bytes], dropped: int, too_large: int) -> None:
        """Write records that a worker process has made for the recording with this number. Thread-safe.

        Those of another recording are dropped: they have what this one may leave out.
        """
        if number != self.numbered.number:
            self.outbox.count(dropped=sum(map(requests_in, records)))
            return
        self.outbox.count(dropped=dropped, too_large=too_large)
        self.outbox.put(lambda: records, sum(map(requests_in, records)), sum(map(len, records)))


class BatchRecord(BatchObserver):
    """The chosen requests of one batch.

    Args:
        chosen: Their indices in the batch.

    Raises:
        Exception: The frame makes no sense.
    """

    def __init__(self, recorder: Recorder, frame: Frame, chosen: Sequence[int]) -> None:
        self._recorder, self._most = recorder, recorder.recording.record_bytes
        self._requests, self._metadata = frame.requests, frame.metadata
        self._arrival, self._began, self._duration_s = time.time(), time.perf_counter(), 0.0
        self._is_over = False
        # Of the request frame and of the responses: copied, and otherwise as they came, for another thread to look at.
        self._messages: list[Message] = []
        self._indices = chosen  # of the requests that are kept
        self._size, self._arrays, self._too_large = len(frame.metadata), COLUMNS, 0
        self._state: State | None = None  # of all requests, if they have failed, but for these
        self._failed: dict[int, State] = {}
        self._cancelled: set[int | None] = set()  # None stands for all
        self._keep("inputs", frame.rows, received_tensors(frame), recorder.inputs)

    def _keep(self, place: str, rows: Sequence[int] | None, tensors: Sequence[Tensor], names: Sequence[str]) -> None:
        """Copy what the requests have of a message; those that are too large are kept no longer."""
        left_out = self._recorder.left_out
        kept = [(names[tensor.name], tensor) for tensor in tensors if names[tensor.name] not in left_out]
        for _, tensor in kept:
            if not tensor.size and prod(extent or 1 for extent in tensor.shape) > MOST_EXTENT:
                raise ValueError(f"a tensor of shape {tensor.shape} is no array together with others")
        message = Message(place, range(self._requests), rows, kept)
        size = message.size()
        if len(self._indices) < self._requests and size > SMALL_BYTES:
            message = message.of(self._indices)
            size = message.size()
        self._size += size
        self._arrays += 1 + len(kept)
        if self._size > self._most * len(self._indices) or self._arrays > MOST_ARRAYS:
            message = self._without_large(message)  # there must be some
        if self._indices:
            self._messages.append(message.copied())

    def _without_large(self, newest: Message) -> Message:
        """Let go of the requests that are too large; returns what the others have of the newest message."""
        messages = [message.of(self._indices) for message in (*self._messages, newest)]
        sizes = sizes_of(messages).tolist()
        most = self._most if self._arrays <= MOST_ARRAYS else 0
        self._indices = [index for index, size in zip(self._indices, sizes, strict=True) if size <= most]
        self._too_large += len(sizes) - len(self._indices)
        *self._messages, newest = [message.of(self._indices) for message in messages]
        self._size = sum([message.size() for message in (*self._messages, newest)])
        return newest

    def replied(self, frame: Frame, tensors: Sequence[Tensor]) -> None:
        """Keep a response, or an error."""
        if self._is_over:
            return
        try:
            self._add(frame, tensors)
        except Exception as error:
            self._recorder.outbox.lose(len(self._indices), error)
            self._indices = []
        if not (frame.more and self._indices):
            self.end()  # now, as whoever gets the answer may stop the recording

    def _add(self, frame: Frame, tensors: Sequence[Tensor]) -> None:
        responses = len(self._messages) - 1
        told = json.loads(frame.metadata) if frame.metadata else {}
        if told.get("isolate"):
            self._indices, self._too_large = [], 0  # each request comes again
        elif frame.kind == RESPONSE and self._indices:
            for index, error in told.get("errors", {}).items():
                self._failed.setdefault(int(index), State(responses, _text_of(error)))
            self._keep(f"outputs/{responses}", frame.rows, tensors, self._recorder.outputs)
        elif "message" in told:
            self._state = State(responses, _text_of(told))

    def failed(self, error: BaseException, request: int | None = None, again: bool = False) -> None:
        """Note that a coroutine was cancelled."""
        if isinstance(error, asyncio.CancelledError):
            self._cancelled.add(request)

    def end(self, cancelled: bool = False) -> None:
        """Have the requests written."""
        if self._is_over:
            return
        self._is_over = True
        if cancelled:
            self._cancelled.add(None)
        self._duration_s = round(time.perf_counter() - self._began, 7)
        if self._too_large:
            self._recorder.outbox.count(too_large=self._too_large)
        if self._indices:
            self._recorder.outbox.put(self._groups, len(self._indices), self._size)
        else:
            self._messages = []  # as a stream may go on for long

    def _groups(self) -> Sequence[Group]:
        """The requests, with all that there is to tell of them."""
        own = {}
        if self._metadata:
            entries = json.loads(self._metadata)
            fields = ((index, self._own(entries.get(str(index), {}))) for index in self._indices)
            own = {index: json.dumps(each) for index, each in fields if each}
        state = self._state or State(len(self._messages) - 1)
        if self._cancelled:
            self._failed |= {index: self._failed.get(index, state) for index in self._indices}
            for index, each in self._failed.items():
                is_cancelled = not self._cancelled.isdisjoint((None, index))
                self._failed[index] = replace(each, is_cancelled=is_cancelled)
        call = Call(self._arrival, self._duration_s, self._requests)
        groups, too_large = grouped(call, self._messages, self._indices, state, self._failed, own, self._most)
        if too_large:
            self._recorder.outbox.count(too_large=too_large)
        return groups

    def _own(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of one request, by its entry in the frame's metadata."""
        without, left_out = self._recorder.left_out_parameters, self._recorder.left_out
        parameters = {
            name: value
            for name, value in public_parameters(entry.get("parameters", {})).items()
            if name.lower() not in without and name.lower().removeprefix(GRPC_PREFIX) not in SECRETS
        }
        fields: dict[str, Any] = {"parameters": parameters} if parameters else {}
        if entry.get("id") and "id" not in left_out:
            fields["id"] = entry["id"]
        if "sequence" in entry:
            number, flags = entry["sequence"]
            fields["sequence"] = [number, bool(flags & SEQUENCE_START), bool(flags & SEQUENCE_END)]
        return fields


def _text_of(error: Mapping[str, Any]) -> str:
    return str(error["message"]) or "it gave no reason"
