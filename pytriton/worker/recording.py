"""Records requests: chooses some of a batch as it arrives, keeps what the worker gets and answers, and makes records.

A request is copied when it is chosen, because a callable may change its inputs, and each response before it is sent.
The rest happens on another thread, behind a bounded queue: a recording loses requests, but holds none up.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate
from typing import Any

from pytriton.constants import GRPC_PREFIX
from pytriton.model_config import Recording
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.recording.format import MOST_RESPONSES, Stored, array_of, encode
from pytriton.recording.writer import Outbox
from pytriton.wire.frames import RESPONSE, SEQUENCE_END, SEQUENCE_START, Frame, received_tensors
from pytriton.wire.tensors import BYTES, WHOLE_BATCH, Tensor, encode_bytes
from pytriton.worker.interfaces import BatchObserver
from pytriton.worker.requests import public_parameters

__all__ = ["NumberedRecording", "Recorder", "RecordingStatus"]

SECRETS = frozenset(["authorization", "cookie", "proxy-authorization", "triton-access-token", "x-api-key"])
TENSOR_BYTES = 64  # at least, of the header of a record
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
        self.details = {
            "model": config.model_name,
            "version": config.model_version,
            "is_streamed": config.decoupled,
            "lacks_inputs": not self.left_out.isdisjoint(self.inputs),
        }
        self.outbox = Outbox(write, f"pytriton-record-{config.model_name}", on_close)

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

    def _choose(self, frame: Frame) -> list[int]:
        share = self.recording.share
        entries = json.loads(frame.metadata) if share < 1 and b'"sequence"' in frame.metadata else {}
        return [index for index in range(frame.requests) if self._draw(entries.get(str(index), {})) < share]

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
            self.outbox.count(dropped=len(records))
            return
        self.outbox.count(dropped=dropped, too_large=too_large)
        self.outbox.put(lambda: records, len(records), sum(map(len, records)))


@dataclass(slots=True)
class ChosenRequest:
    """A request that is recorded, and its answer so far.

    Attributes:
        place: Where the tensors are put that come next, as in ``inputs/NAME``.
        size: Bytes of its record, at least.
    """

    tensors: dict[str, Stored] = field(default_factory=dict)
    place: str = "inputs"
    responses: int = 0
    error: str = ""
    size: int = 0


class BatchRecord(BatchObserver):
    """The chosen requests of one batch.

    Args:
        chosen: Their indices in the batch.

    Raises:
        Exception: The frame makes no sense.
    """

    def __init__(self, recorder: Recorder, frame: Frame, chosen: Sequence[int]) -> None:
        self._recorder = recorder
        self._batch, self._metadata = frame.requests, frame.metadata
        self._arrival, self._began, self._duration_s = time.time(), time.perf_counter(), 0.0
        self._is_cancelled = self._is_over = False
        self._requests = {index: ChosenRequest() for index in chosen}
        self._keep(received_tensors(frame), frame.rows, recorder.inputs)

    def _keep(self, tensors: Sequence[Tensor], rows: Sequence[int] | None, names: Sequence[str]) -> None:
        """Copy what the requests have of some tensors; requests that become too large are let go."""
        ends, most = [0, *accumulate(rows or ())], self._recorder.recording.record_bytes
        for number, owner, code, shape, _, parts in tensors:
            name, is_whole = names[number], owner == WHOLE_BATCH
            if name in self._recorder.left_out or not (is_whole or owner in self._requests):
                continue
            array = array_of(code, shape, parts)
            for index in [*self._requests] if is_whole else [owner]:
                request = self._requests[index]
                piece = array[ends[index] : ends[index + 1]] if is_whole else array
                texts = encode_bytes(piece) if code == BYTES else b""
                request.size += TENSOR_BYTES + (len(texts) or piece.nbytes)
                if request.size > most:
                    del self._requests[index]
                    self._recorder.outbox.count(too_large=1)
                else:
                    request.tensors[f"{request.place}/{name}"] = code, piece.shape, texts or piece.tobytes()

    def replied(self, frame: Frame, tensors: Sequence[Tensor]) -> None:
        """Keep a response, or an error."""
        if self._is_over:
            return
        try:
            self._answer(frame, tensors)
        except Exception as error:
            self._recorder.outbox.lose(len(self._requests), error)
            self._requests.clear()
        if not frame.more:
            self.end()  # now, as whoever gets the answer may stop the recording

    def _answer(self, frame: Frame, tensors: Sequence[Tensor]) -> None:
        told = json.loads(frame.metadata) if frame.metadata else {}
        if told.get("isolate"):
            self._requests.clear()  # each comes again
        errors = told.get("errors", {})
        for index, request in self._requests.items():
            if (failed := errors.get(str(index), told)).get("message") is not None:
                request.error = failed["message"]
            elif frame.kind == RESPONSE:
                request.place = f"outputs/{request.responses}"
                request.responses += 1
        if frame.kind == RESPONSE:
            self._keep(tensors, frame.rows, self._recorder.outputs)

    def failed(self, error: BaseException, request: int | None = None, again: bool = False) -> None:
        """Note that a coroutine was cancelled."""
        self._is_cancelled = self._is_cancelled or isinstance(error, asyncio.CancelledError)

    def end(self, cancelled: bool = False) -> None:
        """Have the requests written."""
        if self._is_over:
            return
        self._is_over = True
        self._is_cancelled = self._is_cancelled or cancelled
        self._duration_s = time.perf_counter() - self._began
        if self._requests:
            size = sum(request.size for request in self._requests.values())
            self._recorder.outbox.put(self._records, len(self._requests), size)

    def _records(self) -> list[bytes]:
        entries = json.loads(self._metadata) if self._metadata else {}
        records = []
        for index, request in self._requests.items():
            details = self._details(request, entries.get(str(index), {}))
            record = encode(self._arrival, details, request.tensors)
            if len(record) > self._recorder.recording.record_bytes or request.responses > MOST_RESPONSES:
                self._recorder.outbox.count(too_large=1)
            else:
                records.append(record)
        return records

    def _details(self, request: ChosenRequest, entry: dict[str, Any]) -> dict[str, Any]:
        left_out = self._recorder.left_out_parameters
        details = {
            **self._recorder.details,
            "duration_s": round(self._duration_s, 7),
            "batch": self._batch,
            "parameters": {
                name: value
                for name, value in public_parameters(entry.get("parameters", {})).items()
                if name.lower() not in left_out and name.lower().removeprefix(GRPC_PREFIX) not in SECRETS
            },
            "error": request.error,
            "is_cancelled": self._is_cancelled,
            "responses": request.responses,
        }
        if "id" not in self._recorder.left_out:
            details["id"] = entry.get("id", "")
        if "sequence" in entry:
            number, flags = entry["sequence"]
            details["sequence"] = [number, bool(flags & SEQUENCE_START), bool(flags & SEQUENCE_END)]
        return details
