"""Prometheus metrics of callables, beside the server's own metrics."""

from __future__ import annotations

import importlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from pytriton.constants import HISTOGRAM_BOUNDS_S
from pytriton.wire.frames import Frame
from pytriton.worker.interfaces import BatchObserver

__all__ = ["BatchMetrics", "CallableMetrics", "TrafficCount", "load_prometheus"]

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
LABELS = ("model", "version")
OTHER = "other"
MAX_ERROR_CLASSES = 50  # a callable may create classes; each would be a time series for ever

_made: WeakKeyDictionary[Any, CallableMetrics] = WeakKeyDictionary()
_making = threading.Lock()


def load_prometheus() -> Any:
    """The module ``prometheus_client``.

    Raises:
        ImportError: It is not installed; the message says how to.
    """
    try:
        return importlib.import_module("prometheus_client")
    except ImportError as error:
        raise ImportError("metrics need prometheus_client; install it with: pip install 'pytriton[metrics]'") from error


class CallableMetrics:
    """The metrics in one registry, which all ``Triton`` objects of the process share.

    ========================================  =========  ==============================================================
    ``pytriton_callable_seconds``             histogram  from the call to the last response
    ``pytriton_batch_requests``               histogram  requests in a call
    ``pytriton_batch_rows``                   histogram  rows in a call; only of calls whose requests were joined
    ``pytriton_in_flight_batches``            gauge      batches at the callable, or waiting for it
    ``pytriton_waiting_batches``              gauge      batches that wait in this process for the callable
    ``pytriton_failed_requests_total``        counter    requests that were answered with an error, by its class
    ``pytriton_server_restarts_total``        counter    how often a server was launched again; without labels
    ``pytriton_split_requests_total``         counter    requests of a ``Split``, by ``target``
    ``pytriton_shadow_requests_total``        counter    copies of a ``Shadow``, by ``target`` and ``result``
    ========================================  =========  ==============================================================

    Labels are ``model`` and ``version``, and ``error`` for the class; those of the last two have no ``version``.

    Args:
        registry: A ``prometheus_client.CollectorRegistry``.
    """

    def __init__(self, registry: Any) -> None:
        prometheus = load_prometheus()
        make = {"labelnames": LABELS, "registry": registry}
        self._seconds = prometheus.Histogram(
            "pytriton_callable_seconds",
            "Time from the call of a callable to its last response",
            buckets=HISTOGRAM_BOUNDS_S,
            **make,
        )
        self._requests = prometheus.Histogram("pytriton_batch_requests", "Requests in a call", buckets=SIZES, **make)
        self._rows = prometheus.Histogram("pytriton_batch_rows", "Rows in a call", buckets=SIZES, **make)
        self._in_flight = prometheus.Gauge(
            "pytriton_in_flight_batches", "Batches at the callable, or waiting for it in its process", **make
        )
        self._waiting = prometheus.Gauge(
            "pytriton_waiting_batches", "Batches that wait for the callable in its process", **make
        )
        self._failed = prometheus.Counter(
            "pytriton_failed_requests",
            "Requests that a callable answered with an error, by its class",
            labelnames=(*LABELS, "error"),
            registry=registry,
        )
        self._restarts = prometheus.Counter(
            "pytriton_server_restarts", "How often a server was launched again", registry=registry
        )
        self._traffic = _Traffic(prometheus)
        registry.register(self._traffic)
        self._models: dict[tuple[str, int], _ModelMetrics] = {}

    @classmethod
    def of(cls, registry: Any) -> CallableMetrics:
        """The metrics in a registry; created by the first call.

        Raises:
            ImportError: ``prometheus_client`` is not installed.
            ValueError: The registry has other metrics of these names.
        """
        with _making:
            if registry not in _made:
                _made[registry] = cls(registry)
            return _made[registry]

    def count_restart(self) -> None:
        """A server was launched again."""
        self._restarts.inc()

    def add_traffic(self, samples: Callable[[], Iterable[TrafficCount]]) -> None:
        """Have the counts of a ``Split`` or a ``Shadow`` read whenever metrics are. Once is enough."""
        self._traffic.sources[samples] = None

    def observer(self, model: str, version: int, frame: Frame) -> BatchObserver:
        """Counts a batch."""
        return self.batch(model, version, frame.requests, None if frame.rows is None else sum(frame.rows))

    def batch(self, model: str, version: int, requests: int, rows: int | None) -> BatchMetrics:
        """As :meth:`observer`, for a batch of so many requests and rows; None if they were not joined."""
        found = self._models.get((model, version))
        if found is None:
            found = self._models.setdefault((model, version), _ModelMetrics(self, model, str(version)))
        return BatchMetrics(found, requests, rows)

    def labelled(self, model: str, version: str) -> tuple[Any, ...]:
        """The metrics of one version of a model, in the order of their table, the last one without its class."""
        metrics = (self._seconds, self._requests, self._rows, self._in_flight, self._waiting)
        return tuple(metric.labels(model, version) for metric in metrics)

    def failed(self, model: str, version: str, error: str) -> Any:
        """The counter of one class of errors."""
        return self._failed.labels(model, version, error)


class TrafficCount(NamedTuple):
    """One value of ``pytriton_split_requests_total`` or ``pytriton_shadow_requests_total``.

    Attributes:
        kind: ``split`` or ``shadow``.
        labels: The values of its labels.
    """

    kind: str
    labels: tuple[str, ...]
    value: int


class _Traffic:
    """Collects the counts of models that pass requests on, of which the edge counts most."""

    def __init__(self, prometheus: Any) -> None:
        self._family = prometheus.metrics_core.CounterMetricFamily
        self.sources: dict[Callable[[], Iterable[TrafficCount]], None] = {}

    def collect(self) -> Iterable[Any]:
        found = Counter[tuple[str, tuple[str, ...]]]()
        for source in [*self.sources]:
            for kind, labels, value in source():
                found[kind, labels] += value  # of all that had the name, one after the other
        split = self._family(
            "pytriton_split_requests",
            "Requests that a Split has passed on, by the model that got them",
            labels=("model", "target"),
        )
        shadow = self._family(
            "pytriton_shadow_requests",
            "Copies of requests that a Shadow has sent or dropped, by what became of them",
            labels=("model", "target", "result"),
        )
        for (kind, labels), value in found.items():
            (split if kind == "split" else shadow).add_metric(labels, value)
        return split, shadow


class _ModelMetrics:
    """The metrics of one version of a model, without a look-up for each batch."""

    def __init__(self, metrics: CallableMetrics, model: str, version: str) -> None:
        self.seconds, self.requests, self.rows, self.in_flight, self.waiting = metrics.labelled(model, version)
        self._error_counter = partial(metrics.failed, model, version)
        self._errors: dict[str, Any] = {}

    def failed(self, name: str, requests: int) -> None:
        if name not in self._errors and len(self._errors) >= MAX_ERROR_CLASSES:
            name = OTHER
        if name not in self._errors:
            self._errors[name] = self._error_counter(name)
        self._errors[name].inc(requests)


class BatchMetrics(BatchObserver):
    """Counts one batch. Moments are in :func:`time.perf_counter` seconds; None is now."""

    def __init__(self, metrics: _ModelMetrics, requests: int, rows: int | None) -> None:
        self._metrics = metrics
        self._requests = requests
        self._begun: float | None = None
        metrics.in_flight.inc()
        metrics.waiting.inc()
        metrics.requests.observe(requests)
        if rows is not None:
            metrics.rows.observe(rows)

    def resume(self, at: float | None = None) -> None:
        """The callable runs."""
        if self._begun is None:
            self._begun = time.perf_counter() if at is None else at
            self._metrics.waiting.dec()

    def failed(self, error: BaseException, request: int | None = None, again: bool = False) -> None:
        """Requests have failed."""
        if not again:
            self.failed_as(type(error).__name__, request)

    def failed_as(self, error: str, request: int | None) -> None:
        """As :meth:`failed`, with only the name of the error's class."""
        self._metrics.failed(error, self._requests if request is None else 1)

    def end(self, cancelled: bool = False, at: float | None = None) -> None:
        """No reply follows."""
        self._metrics.in_flight.dec()
        if self._begun is None:  # cancelled while it waited
            self._metrics.waiting.dec()
        else:
            self._metrics.seconds.observe((time.perf_counter() if at is None else at) - self._begun)
