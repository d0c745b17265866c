"""Records requests: chooses some of a batch as it arrives, keeps what the worker gets and answers, and makes records.

A request is copied when it is chosen, because a callable may change its inputs, and each response before it is sent.
The rest happens on another thread, behind a bounded queue: a recording loses requests, but holds none up.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytriton.logs import get_logger
from pytriton.model_config import Recording
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.recording.format import Stored, encode
from pytriton.recording.writer import Outbox
from pytriton.wire.frames import ERROR, RESPONSE, SEQUENCE_END, SEQUENCE_START, Frame, received_tensors
from pytriton.wire.tensors import BYTES, WHOLE_BATCH, Tensor
from pytriton.worker.interfaces import BatchObserver
from pytriton.worker.requests import RESERVED_PARAMETERS

__all__ = ["Recorder", "RecordingStatus"]

LOGGER = get_logger("pytriton.recording")

SECRETS = frozenset(["authorization", "cookie", "proxy-authorization", "triton-access-token", "x-api-key"])
ID = "id"
MOST_BUSY_S = 0.0005  # at a time; a thread keeps the interpreter for 5 ms otherwise

Kept = dict[int, list[Stored]]  # by the request's index in the batch


@dataclass(frozen=True)
class RecordingStatus:
    """What a recording has come to.

    Attributes:
        path: Of its newest file.
        recorded: Requests in its files, of which older files may be deleted by now.
        dropped: Requests that it has lost, because they came faster than they could be written, or the disk is full.
        too_large: Requests that were larger than ``record_bytes``.
        bytes: All that was written.
    """

    path: str
    recorded: int = 0
    dropped: int = 0
    too_large: int = 0
    bytes: int = 0


class Reported(NamedTuple):
    """Records that a worker process has made, and how many it has not."""

    records: list[bytes]
    dropped: int
    too_large: int


class Recorder:
    """Records the requests of one model in this process.

    Args:
        write: Gets records, on a thread of the recorder, and how many requests were dropped and too large since it was
            last called; raises OSError if the records are lost.
        on_close: Called after the last of them.

    Attributes:
        is_stopped: Whether no more requests are chosen.
    """

    def __init__(
        self,
        config: TritonModelConfig,
        recording: Recording,
        write: Callable[[list[bytes], int, int], object],
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.is_stopped = False
        self.recording = recording
        self.details: dict[str, Any] = {"model": config.model_name, "version": config.model_version}
        if config.decoupled:
            self.details["is_streamed"] = True
        self.left_out = frozenset(recording.without)
        self.inputs = [self._kept(spec.name) for spec in config.inputs or ()]
        if None in self.inputs:
            self.details["lacks_inputs"] = True
        self.outputs = [self._kept(spec.name) for spec in config.outputs or ()]
        self._write, self._on_close = write, on_close
        self._status = RecordingStatus(str(recording.path))
        self._lost = self._large = 0  # not told to write() yet
        self._denominator = math.log1p(-recording.share) if recording.share < 1 else -math.inf
        self._skip = self._gap()
        self._outbox = Outbox(self._consume, f"pytriton-record-{config.model_name}")

    def _kept(self, name: str) -> str | None:
        return None if name in self.left_out else name

    def status(self) -> RecordingStatus:
        """What has come of it so far. Thread-safe."""
        status = self._status
        return replace(status, dropped=status.dropped + self._lost, too_large=status.too_large + self._large)

    def stop(self) -> None:
        """Choose no more requests; those that were chosen are still taken, until :meth:`close`."""
        self.is_stopped = True

    def close(self) -> None:
        """Write what is waiting, and end. Batches that are not answered yet are not recorded."""
        for item in self._outbox.close():
            self.lose(len(item.chosen if isinstance(item, BatchRecord) else item.records))
        self._on_close()

    def sample(self, frame: Frame) -> BatchRecord | None:
        """What observes a batch that has just arrived; None if none of its requests is chosen. Raises nothing."""
        skip, requests = self._skip, frame.requests
        if skip >= requests or self.is_stopped:
            self._skip = skip - requests  # threads that do this at once choose a bit more
            return None
        chosen = []
        while skip < requests:
            chosen.append(skip)
            skip += 1 + self._gap()
        self._skip = skip - requests
        try:
            return BatchRecord(self, frame, chosen)
        except Exception as error:  # such as of what a client sent that makes no sense, and fails elsewhere
            self.lose(len(chosen), error)
            return None

    def _gap(self) -> int:
        """How many requests to pass over before the next one that is chosen."""
        return int(math.log(1.0 - random.random()) / self._denominator) if self.recording.share < 1 else 0

    def lose(self, requests: int, error: Exception | None = None) -> None:
        """Count requests that are not recorded; an OverflowError says that they are too large."""
        if isinstance(error, OverflowError):
            self._large += requests
            return
        self._lost += requests
        if error is not None:
            LOGGER.debug("requests are not recorded", exc_info=error)

    def put(self, batch: BatchRecord) -> None:
        """Write the requests of a batch that was answered, soon."""
        if not self._outbox.put(batch, batch.size):
            self.lose(len(batch.chosen))

    def take(self, records: list[bytes], dropped: int, too_large: int) -> None:
        """Write records that a worker process has made. Any thread may call it."""
        if not self._outbox.put(Reported(records, dropped, too_large), sum(map(len, records))):
            self.lose(len(records) + dropped)
            self._large += too_large

    def _consume(self, items: list[BatchRecord | Reported]) -> None:
        records: list[bytes] = []
        give_way = time.perf_counter() + MOST_BUSY_S
        lost, self._lost = self._lost, 0
        large, self._large = self._large, 0
        for item in items:
            if isinstance(item, Reported):
                records += item.records
                lost, large = lost + item.dropped, large + item.too_large
                continue
            if not self.is_stopped and time.perf_counter() > give_way:
                time.sleep(0)  # threads that answer requests may wait for the interpreter
                give_way = time.perf_counter() + MOST_BUSY_S
            try:
                made = [*item.records()]
            except Exception as error:
                self.lose(len(item.chosen), error)
                continue
            small = [record for record in made if len(record) <= self.recording.record_bytes]
            records += small
            large += len(made) - len(small)
        written = 0
        try:
            self._write(records, lost, large)
            written = len(records)
        finally:
            status = self._status
            self._status = replace(
                status,
                recorded=status.recorded + written,
                dropped=status.dropped + lost + len(records) - written,
                too_large=status.too_large + large,
                bytes=status.bytes + (sum(map(len, records)) if written else 0),
            )


class BatchRecord(BatchObserver):
    """The chosen requests of one batch.

    Raises:
        OverflowError: The requests are too large.
        Exception: The frame makes no sense.

    Attributes:
        chosen: Their indices in the batch.
        size: Bytes of their tensors so far.
    """

    def __init__(self, recorder: Recorder, frame: Frame, chosen: Sequence[int]) -> None:
        self.chosen = chosen
        self.size = 0
        self._recorder = recorder
        self._requests, self._metadata = frame.requests, frame.metadata
        self._arrival, self._began, self._duration_s = time.time(), time.perf_counter(), 0.0
        self._is_cancelled = self._is_over = False
        self._inputs: Callable[[], Kept] = self._keep(received_tensors(frame), frame.rows, recorder.inputs)
        self._replies: list[tuple[bytes, Callable[[], Kept]]] = []  # each with its metadata

    def _keep(
        self, tensors: Sequence[Tensor], rows: Sequence[int] | None, names: Sequence[str | None]
    ) -> Callable[[], Kept]:
        """Copy what is chosen of some tensors; where that is most of them, whole, to be cut on another thread."""
        left = self._recorder.recording.record_bytes * len(self.chosen) - self.size
        if 2 * len(self.chosen) < self._requests:
            kept, size = cut(tensors, rows, self.chosen, names, left)
            self.size += size
            return lambda: kept
        wanted = [item for item in tensors if names[item.name] is not None]
        size = sum([item.size for item in wanted])
        if size > left:
            raise OverflowError(f"{size} bytes")
        self.size += size
        copies = [
            item._replace(parts=() if names[item.name] is None else (bytes(_joined(item.parts)),)) for item in tensors
        ]
        return lambda: cut(copies, rows, self.chosen, names, size)[0]

    def replied(self, frame: Frame, tensors: Sequence[Tensor]) -> None:
        """Keep a response, or an error."""
        if self._is_over:
            return
        try:
            if frame.kind == RESPONSE:
                self._replies.append((frame.metadata, self._keep(tensors, frame.rows, self._recorder.outputs)))
            elif frame.kind == ERROR:
                self._replies.append((frame.metadata, dict))
            if frame.kind == ERROR and json.loads(frame.metadata).get("isolate"):
                self._is_over = True  # each request comes again
            elif not frame.more:
                self.end()  # now, as whoever gets the answer may stop the recording
        except Exception as error:
            self._is_over, self._inputs = True, dict
            self._replies.clear()
            self._recorder.lose(len(self.chosen), error)

    def failed(self, error: BaseException, request: int | None = None, again: bool = False) -> None:
        """Note that a coroutine was cancelled."""
        self._is_cancelled = self._is_cancelled or isinstance(error, asyncio.CancelledError)

    def end(self, cancelled: bool = False) -> None:
        """Have the requests written."""
        self._duration_s = time.perf_counter() - self._began
        self._is_cancelled = self._is_cancelled or cancelled
        if not self._is_over:
            self._is_over = True
            self._recorder.put(self)

    def records(self) -> Iterator[bytes]:
        """A record of each chosen request."""
        entries = json.loads(self._metadata) if self._metadata else {}
        replies = [(json.loads(metadata) if metadata else {}, keep()) for metadata, keep in self._replies]
        inputs = self._inputs()
        for index in self.chosen:
            details = self._details(entries.get(str(index), {}))
            tensors = _renamed("inputs", inputs.get(index, ()))
            responses = 0
            for told, kept in replies:
                failed = told if "message" in told else told.get("errors", {}).get(str(index))
                if failed is not None:
                    details["error"] = failed["message"]
                elif index in kept:
                    tensors += _renamed(f"outputs/{responses}", kept[index])
                    responses += 1
            details["responses"] = responses
            yield encode(self._arrival, details, tensors)

    def _details(self, entry: dict[str, Any]) -> dict[str, Any]:
        left_out = self._recorder.left_out
        details = {**self._recorder.details, "duration_s": round(self._duration_s, 7), "batch": self._requests}
        if entry.get(ID) and ID not in left_out:
            details[ID] = entry[ID]
        parameters = {
            name: value
            for name, value in entry.get("parameters", {}).items()
            if name not in RESERVED_PARAMETERS
            and name not in left_out
            and not name.startswith("triton_")
            and name.lower() not in SECRETS
        }
        if parameters:
            details["parameters"] = parameters
        if "sequence" in entry:
            number, flags = entry["sequence"]
            details["sequence"] = [number, bool(flags & SEQUENCE_START), bool(flags & SEQUENCE_END)]
        if self._is_cancelled:
            details["is_cancelled"] = True
        return details


class Piece(NamedTuple):
    """Some rows of a tensor: views that are the data when put one after the other, and the shape."""

    views: tuple[memoryview, ...]
    shape: tuple[int, ...]


def _renamed(side: str, tensors: Iterable[Stored]) -> list[Stored]:
    return [Stored(f"{side}/{name}", code, shape, data) for name, code, shape, data in tensors]


def cut(
    tensors: Iterable[Tensor],
    rows: Sequence[int] | None,
    chosen: Sequence[int],
    names: Sequence[str | None],
    most_bytes: int,
) -> tuple[Kept, int]:
    """Copies of the tensors of chosen requests, and how many bytes these are.

    Args:
        rows: Of each request, if the tensors hold the rows of all.
        names: Of the tensors, by their number; those of None are left out.

    Returns:
        By request; those that have no tensor at all are absent.

    Raises:
        OverflowError: They are more than ``most_bytes``.
    """
    kept: Kept = {}
    total, found = 0, {*chosen}
    ends = [0, *accumulate(rows)] if rows is not None else []
    for number, request, code, shape, size, parts in tensors:
        wanted: Sequence[int] = chosen if request == WHOLE_BATCH else (request,) if request in found else ()
        for index in wanted:
            kept.setdefault(index, [])
        name = names[number]
        if name is None or not wanted:
            continue
        data = _joined(parts) if size else memoryview(b"")
        if request == WHOLE_BATCH:
            pieces = _cut_rows(data, code, shape, [(ends[index], ends[index + 1]) for index in wanted])
        else:
            pieces = [Piece((data,), shape)]
        for index, (views, piece_shape) in zip(wanted, pieces, strict=True):
            total += sum(map(len, views))
            if total > most_bytes:
                raise OverflowError(f"more than {most_bytes} bytes")
            kept[index].append(Stored(name, code, piece_shape, b"".join(views)))
    return kept, total


def _cut_rows(data: memoryview, code: int, shape: tuple[int, ...], ranges: Sequence[tuple[int, int]]) -> list[Piece]:
    """Some rows of a tensor, from one to another: views of their data, and their shape."""
    count, rest = shape[0], shape[1:]
    if code != BYTES:
        row = len(data) // count if count else 0
        return [Piece((data[first * row : end * row],), (end - first, *rest)) for first, end in ranges]
    per_row, texts = prod(rest), prod(shape)
    lengths, base = data[: 4 * texts], 4 * texts
    ends = np.cumsum(np.frombuffer(lengths, "<u4"), dtype=np.int64) if texts else np.empty(0, np.int64)
    starts = [base, *(base + ends).tolist()]
    found = []
    for first, end in ranges:
        begin, over = first * per_row, end * per_row
        views = lengths[4 * begin : 4 * over], data[starts[begin] : starts[over]]
        found.append(Piece(views, (end - first, *rest)))
    return found


def _joined(parts: Sequence[Any]) -> memoryview:
    views = [_bytes_of(part) for part in parts]
    return views[0] if len(views) == 1 else memoryview(b"".join(views))


def _bytes_of(part: Any) -> memoryview:
    if isinstance(part, bytes):
        return memoryview(part)
    return np.frombuffer(part, np.uint8).data if part.nbytes else memoryview(b"")
