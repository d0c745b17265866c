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
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

from pytriton.constants import GRPC_PREFIX
from pytriton.model_config import Recording
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.recording.format import requests_in
from pytriton.recording.parts import TENSOR_BYTES, Part, Parts, records
from pytriton.recording.writer import Outbox
from pytriton.wire.frames import RESPONSE, SEQUENCE_END, SEQUENCE_START, Frame, tensors_in
from pytriton.wire.tensors import Tensor
from pytriton.worker.interfaces import BatchObserver
from pytriton.worker.requests import public_parameters

__all__ = ["NumberedRecording", "Recorder", "RecordingStatus"]

SECRETS = frozenset(["authorization", "cookie", "proxy-authorization", "triton-access-token", "x-api-key"])
LONGEST_GAP = 2.0**53
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
        combine = partial(records, details)
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

    def let_go(self, requests: int) -> None:
        """Count requests that are too large."""
        self.outbox.count(too_large=requests)

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
        """Each with the same probability, by how many are passed over before the next one: often one draw is enough."""
        chosen = []
        index = self._passed_over
        while index < requests:
            chosen.append(index)
            index += 1 + self._gap()
        self._passed_over = index - requests
        return chosen

    def _gap(self) -> int:
        """How many requests are passed over before the next one."""
        return int(min(math.log(1.0 - random.random()) / math.log1p(-self.recording.share), LONGEST_GAP))

    def _draw(self, entry: Mapping[str, Any]) -> float:
        """A random number from 0 to 1, of which all requests of a sequence have the same."""
        if "sequence" not in entry:
            return random.random()
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
        self._requests, self._rows, self._metadata, self._chosen = frame.requests, frame.rows, frame.metadata, chosen
        self._arrival, self._began, self._duration_s = time.time(), time.perf_counter(), 0.0
        self._is_cancelled = self._is_over = False
        self._parts: Parts | None = None
        # Copies, which another thread looks at, unless there is so much that some may be let go at once.
        self._inputs, self._data, self._size = frame.tensors, frame.data, frame.data_bytes
        self._replies: list[tuple[Frame, Sequence[Tensor]]] = []
        if self._size > self._most:
            self._look()
        elif self._size:
            self._data = bytes(self._data[: self._size])

    def _look(self) -> Parts:
        """What there is of the chosen requests. What comes later is looked at at once."""
        if self._parts is None:
            rows = self._rows and [self._rows[index] for index in self._chosen]
            part = Part(self._arrival, self._requests, self._chosen, rows)
            self._parts = Parts(part, self._rows, self._most, self._recorder.let_go)
            self._parts.add_inputs(self._named(tensors_in(self._inputs, self._data), self._recorder.inputs))
            self._data = None
            for frame, tensors in self._replies:
                self._answer(self._parts, frame, tensors)
        return self._parts

    def _named(self, tensors: Sequence[Tensor], names: Sequence[str]) -> list[tuple[str, Tensor]]:
        """Those that are recorded."""
        left_out = self._recorder.left_out
        return [(names[tensor.name], tensor) for tensor in tensors if names[tensor.name] not in left_out]

    def replied(self, frame: Frame, tensors: Sequence[Tensor]) -> None:
        """Keep a response, or an error."""
        if self._is_over:
            return
        self._size += TENSOR_BYTES + sum([tensor.size for tensor in tensors])
        try:
            if self._parts is None and self._size <= self._most:
                self._replies.append((frame, [tensor._replace(parts=(tensor.data(),)) for tensor in tensors]))
            else:
                self._answer(self._look(), frame, tensors)
        except Exception as error:
            self._recorder.outbox.lose(len(self._chosen), error)
            self._is_over = True
        if not frame.more:
            self.end()  # now, as whoever gets the answer may stop the recording

    def _answer(self, parts: Parts, frame: Frame, tensors: Sequence[Tensor]) -> None:
        told = json.loads(frame.metadata) if frame.metadata else {}
        if told.get("isolate"):
            parts.clear()  # each request comes again
        elif frame.kind == RESPONSE:
            errors = {int(index): error["message"] for index, error in told.get("errors", {}).items()}
            parts.add_response(self._named(tensors, self._recorder.outputs), errors)
        elif "message" in told:
            parts.fail(told["message"])

    def failed(self, error: BaseException, request: int | None = None, again: bool = False) -> None:
        """Note that a coroutine was cancelled."""
        self._is_cancelled = self._is_cancelled or isinstance(error, asyncio.CancelledError)

    def end(self, cancelled: bool = False) -> None:
        """Have the requests written."""
        if self._is_over:
            return
        self._is_over = True
        self._is_cancelled = self._is_cancelled or cancelled
        self._duration_s = round(time.perf_counter() - self._began, 7)
        if self._parts is None or self._parts:
            self._recorder.outbox.put(self._finished, len(self._chosen), self._size)

    def _finished(self) -> Sequence[Part]:
        """The parts, with what there is to tell of the call and of each request."""
        parts = self._look()
        entries = json.loads(self._metadata) if self._metadata else {}
        for part in parts:
            part.duration_s, part.is_cancelled = self._duration_s, self._is_cancelled
            for number, index in enumerate(part.requests if entries else ()):
                if fields := self._own(entries.get(str(index), {})):
                    part.add_own(number, fields)
        parts.fit()
        return [*parts]

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
