"""The context for inference, and the pool of threads that keeps the order of sequences."""

from __future__ import annotations

import functools
import math
import operator
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from pytriton import forks
from pytriton.client.tensors import InferResponse
from pytriton.client.threads import CallbackThread, DetachedFuture
from pytriton.compat.tensorrtserver.connection import Connection
from pytriton.compat.tensorrtserver.contexts import Context, next_number
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException, translated
from pytriton.compat.tensorrtserver.messages import InferRequestHeader
from pytriton.compat.tensorrtserver.served_model import Answer, Request, ServedModel
from pytriton.compat.tensorrtserver.tensors import ResultFormat, Results

__all__ = ["InferContext"]

REQUESTS_AT_ONCE = 16
"""Further requests wait in the client, unless there is a stream; each has a thread and a connection."""

P = ParamSpec("P")
R = TypeVar("R")
Work = Callable[[], None]

_START, _END = InferRequestHeader.FLAG_SEQUENCE_START, InferRequestHeader.FLAG_SEQUENCE_END


def _with_or_without_callback(method: Callable[Concatenate[InferContext, P], R]) -> Callable[..., R]:
    """Let a method whose first argument is a callback be called without it."""

    @functools.wraps(method)
    def called(context: InferContext, *args: Any, **options: Any) -> R:
        has_callback = "callback" in options or (args and (args[0] is None or callable(args[0])))
        return method(context, *(args if has_callback else (None, *args)), **options)

    return called


class InferContext(Context):
    """Infers with one model.

    One thread may call :meth:`run`; :meth:`async_run` and :meth:`get_async_run_results` may be called from several.

    Args:
        url: As for :class:`Context`, like the arguments without an explanation here.
        protocol: 0 is HTTP, and 1 is gRPC.
        model_version: None and -1 are the highest.
        verbose: Print every call and its result.
        correlation_id: Of the sequence that the requests belong to; 0 is none.
        streaming: Send all requests over one gRPC stream, in the order in which they are made. None waits for the
            response to another one; responses come in the same order.
        http_headers: Texts ``name:value``.
        headers: Name to value.

    Raises:
        InferenceServerException: An argument is wrong, the server cannot be reached, or it has no such model.
    """

    ResultFormat = ResultFormat

    def __init__(
        self,
        url: str,
        protocol: int,
        model_name: str,
        model_version: int | None = None,
        verbose: bool = False,
        correlation_id: int = 0,
        streaming: bool = False,
        http_headers: Sequence[str] | None = (),
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        connection = Connection(url, protocol, verbose, http_headers, headers, streaming=streaming)
        self._start(connection)
        self._correlation_id = self._checked_correlation_id(correlation_id)
        version = None if model_version is None else _integer("model_version", model_version)
        try:
            self._model = ServedModel(connection, model_name, version)
        except BaseException:
            connection.close()
            raise
        self._streaming = streaming
        self._last: Answer | None = None
        self._start_threads()
        forks.register(self)

    def _start_threads(self) -> None:
        self._workers = _OrderedPool(REQUESTS_AT_ONCE, "pytriton-infer")
        self._callbacks = CallbackThread("pytriton-infer-callbacks")
        self._finalizer = weakref.finalize(self, self._callbacks.stop)
        self._pending: dict[int, Future[Answer]] = {}

    def after_fork(self) -> None:
        """In a forked child, start new threads; only the parent gets the results of requests under way."""
        self._finalizer.detach()
        self._start_threads()

    def run(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        batch_size: int = 1,
        flags: int = 0,
        corr_id: int = 0,
        priority: int = 0,
        timeout_us: int = 0,
    ) -> Results:
        """Infer one batch and wait for the results.

        Args:
            inputs: Name to a list of ``batch_size`` arrays, each without batch axis.
            outputs: Name to ``ResultFormat.RAW`` or ``(ResultFormat.CLASS, k)``.
            batch_size: 1 to the model's maximum; 0 counts as 1.
            flags: Of ``InferRequestHeader``: ``FLAG_SEQUENCE_START``, ``FLAG_SEQUENCE_END``, both, or 0. They are sent
                with a correlation id alone.
            corr_id: Correlation id of this and all later requests; 0 leaves it as it is.
            priority: Level in the model's queue; 0 is the model's default.
            timeout_us: Microseconds that the request may wait in the model's queue; 0 is the model's default.

        Returns:
            Name to a list of ``batch_size`` results. RAW is an array without batch axis, of ``bytes`` objects for
            strings; CLASS a list of at most k tuples of the class's index, value, and label or None, the best first.
            An output in shared memory is a copy of what the server has put there.

        Raises:
            InferenceServerException: An argument does not fit the model, or the inference failed.
        """
        self._check_open()
        try:
            request = self._encode(inputs, outputs, batch_size, flags, corr_id, priority, timeout_us)
            return self._finish(request.number, self._begin(request, Future()))
        except InferenceServerException:
            self._forget()
            raise

    @_with_or_without_callback
    def async_run(
        self,
        callback: Callable[[InferContext, int], object] | None,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        batch_size: int = 1,
        flags: int = 0,
        corr_id: int = 0,
        priority: int = 0,
        timeout_us: int = 0,
    ) -> int | None:
        """Begin what :meth:`run` does; the results are for :meth:`get_async_run_results`.

        Requests of a sequence keep their order. Without streaming, others may overtake each other, and a request of a
        sequence is not sent before the one before it has been answered.

        Args:
            callback: Called with this context and the request's number once it has ended, well or not. Callbacks run
                one after the other in a thread of their own. It may be None or left out, as in releases 1.4 to 1.7:
                ``async_run(inputs, outputs)``.
            inputs: As of :meth:`run`; the arrays may be changed when this has returned.
            outputs: As of :meth:`run`.
            batch_size: As of :meth:`run`.
            flags: As of :meth:`run`.
            corr_id: As of :meth:`run`.
            priority: As of :meth:`run`.
            timeout_us: As of :meth:`run`.

        Returns:
            The request's number, if there is no callback to get it.

        Raises:
            InferenceServerException: An argument does not fit the model; there is no request then.
        """
        self._check_open()
        request = self._encode(inputs, outputs, batch_size, flags, corr_id, priority, timeout_us)
        answer: DetachedFuture[Answer] = DetachedFuture(self._callbacks)
        if callback is not None:
            answer.add_done_callback(lambda _: callback(self, request.number))
        self._pending[request.number] = answer
        try:
            self._begin(request, answer)
        except InferenceServerException:
            del self._pending[request.number]
            raise
        return request.number if callback is None else None

    async_run_with_cb = async_run
    """The name that it had in releases 1.4 to 1.7."""

    def get_async_run_results(self, request_id: int, wait: bool = True) -> Results | None:
        """The results of a request, once.

        Args:
            request_id: What the callback got.
            wait: Wait for them if the request has not ended, instead of returning None.

        Raises:
            InferenceServerException: The request failed, or there is no such request, perhaps no more.
        """
        self._check_open()
        if not wait and request_id in self._pending and not self._pending[request_id].done():
            return None
        answer = self._pending.pop(request_id, None)
        if answer is None:
            raise InferenceServerException(f"there is no request {request_id}, or its results have been taken")
        return self._finish(request_id, answer)

    def get_last_request_model_name(self) -> str | None:
        """Name of the model that answered the last request; None if it failed, and before the first.

        Also after :meth:`close`.
        """
        return self._last.model_name if self._last else None

    def get_last_request_model_version(self) -> int | None:
        """Version of the model that answered the last request; None if it failed, and before the first.

        Also after :meth:`close`.
        """
        return self._last.model_version if self._last else None

    def correlation_id(self) -> int:
        """That of the next request; 0 is none. Also after :meth:`close`."""
        return self._correlation_id

    def get_stat(self) -> dict[str, int]:
        """Counts and nanoseconds since the context was made, of the requests that have been answered.

        Returns:
            ``completed_request_count``, ``cumulative_total_request_time_ns``, ``cumulative_send_time_ns`` (encoding of
            requests) and ``cumulative_receive_time_ns`` (decoding of responses). The times on the network are part of
            the total alone.
        """
        self._check_open()
        return self._model.counters.as_dict()

    def close(self) -> None:
        """Wait for the requests under way and their callbacks, and close the connections."""
        self._workers.shutdown()
        self._connection.finish()
        self._callbacks.stop()
        self._callbacks.join()
        super().close()

    def _encode(
        self, inputs: Any, outputs: Any, batch_size: int, flags: int, corr_id: int, priority: int, timeout_us: int
    ) -> Request:
        flags = _integer("flags", flags)
        if flags & ~(_START | _END):
            raise InferenceServerException(f"flags are {flags}, which has bits other than those of sequences")
        if corr_id := _integer("corr_id", corr_id):
            self._correlation_id = self._checked_correlation_id(corr_id)
        sequence = {
            "sequence_id": self._correlation_id,
            "sequence_start": bool(flags & _START),
            "sequence_end": bool(flags & _END),
        }
        options = {"priority": _integer("priority", priority), "timeout": _integer("timeout_us", timeout_us)}
        with translated():
            return self._model.request(
                next_number(),
                inputs,
                outputs,
                _integer("batch_size", batch_size) or 1,
                sequence if self._correlation_id else {},
                {name: value for name, value in options.items() if value},
            )

    def _begin(self, request: Request, answer: Future[Answer]) -> Future[Answer]:
        """Send a request, and return ``answer``, which gets the result or the failure."""
        if self._streaming:
            with self._numbered(request.number):
                sent = self._connection.send(request.arguments)
            sent.add_done_callback(lambda sent: self._fulfil(request, answer, sent.result))
            return answer
        try:
            receive = partial(self._connection.call, "infer", request.arguments, math.inf)
            work = partial(self._fulfil, request, answer, receive)
            self._workers.submit(work, request.correlation_id)
        except RuntimeError:
            raise InferenceServerException("this InferContext is being closed; make a new one") from None
        return answer

    def _fulfil(self, request: Request, answer: Future[Answer], receive: Callable[[], InferResponse]) -> None:
        try:
            with self._numbered(request.number), translated():
                found = self._model.answer(request, receive())
        except BaseException as error:
            answer.set_exception(error)
        else:
            answer.set_result(found)

    def _finish(self, number: int, future: Future[Answer]) -> Results:
        try:
            answer = future.result()
        except InferenceServerException:
            self._forget()
            raise
        self._last, self._last_request_id = answer, number
        return answer.results

    def _forget(self) -> None:
        self._last = self._last_request_id = None

    def _checked_correlation_id(self, value: Any) -> int:
        number = _integer("the correlation id", value)
        if not 0 <= number < 2**64:
            raise InferenceServerException(f"the correlation id must be 0 to {2**64 - 1}, got {value}")
        return number


class _OrderedPool:
    """Runs functions in threads: those with the same key one after the other, all others at once.

    Args:
        threads: Number of threads; further functions wait.
        name: Prefix of the threads' names.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._waiting: dict[int, deque[Work]] = {}
        """By key, the functions that wait for the end of one with the same key."""

    def submit(self, work: Work, key: int = 0) -> None:
        """Run a function, which must not raise, in a thread.

        Args:
            work: The function.
            key: Functions with the same key run in the order in which they were submitted; 0 is no key.

        Raises:
            RuntimeError: This is shut down.
        """
        if not key:
            self._executor.submit(work)
            return
        with self._lock:
            if key in self._waiting:
                self._waiting[key].append(work)
                return
            self._executor.submit(self._run, work, key)
            self._waiting[key] = deque()

    def shutdown(self) -> None:
        """Take no more functions, and wait for the end of all."""
        self._executor.shutdown()

    def _run(self, work: Work | None, key: int) -> None:
        while work is not None:
            work()
            work = self._next(key)

    def _next(self, key: int) -> Work | None:
        with self._lock:
            if self._waiting[key]:
                return self._waiting[key].popleft()
            del self._waiting[key]
            return None


def _integer(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InferenceServerException(f"{name} must be an int, got {value!r}") from None
