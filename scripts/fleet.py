"""A simulation of servers behind balancers, request by request: routing, batching and autoscaling."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count as numbers
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ROUTES", "SERVERS", "Outcome", "Scaling", "Server", "Times", "poisson", "simulate"]

SERVERS = 100
WARMUP = 0.1  # the share of the requests that are not counted, as they find empty queues
TOLERANCE = 0.1  # of the autoscaler, as that of Kubernetes
_DONE, _DELAYED, _STARTED, _CONTROL = range(4)

Times = NDArray[np.float64]
Counts = list[int]


@dataclass(frozen=True)
class Server:
    """What one server does with its queue. Times in seconds.

    Attributes:
        batch_s: Time of a batch, however many requests it has.
        request_s: Time of each request of a batch.
        max_batch: The most requests of a batch.
        delay_s: How long the oldest request waits for others while the instance is free, ``max_queue_delay``.
        variation: Standard deviation over mean of a batch's time: 0 is constant, 1 exponential.
    """

    batch_s: float
    request_s: float
    max_batch: int = 1
    delay_s: float = 0.0
    variation: float = 0.0

    @property
    def capacity(self) -> float:
        """Requests per second with full batches."""
        return self.max_batch / (self.batch_s + self.request_s * self.max_batch)


@dataclass(frozen=True)
class Scaling:
    """An autoscaler with the rules of Kubernetes' HorizontalPodAutoscaler. Times in seconds.

    Attributes:
        signal: Per server: ``queue``, the requests that wait; ``busy``, the share of time that the instance computes;
            or ``rate``, the requests answered per second.
        target: What the signal should be.
        start_s: How long a server takes until it answers.
        interval_s: Between two looks at the signal.
        stable_s: How long fewer servers must have been enough before some are ended.
        shrinking: The greatest share of the servers that is ended per minute. Default: any.
    """

    signal: str
    target: float
    start_s: float = 30.0
    interval_s: float = 15.0
    stable_s: float = 300.0
    shrinking: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What a simulation found: the time of each request in its queue and in all; servers x time, in seconds."""

    waits_s: Times
    latencies_s: Times
    server_s: float
    batches: int

    @property
    def p99_s(self) -> float:
        """The 99th percentile of the latencies."""
        return float(np.percentile(self.latencies_s, 99))


def _round_robin(order: Counts, counts: Counts, chance: Callable[[], float]) -> int:
    return order[0]


def _least_outstanding(order: Counts, counts: Counts, chance: Callable[[], float]) -> int:
    return min(order, key=counts.__getitem__)


def _two_choices(order: Counts, counts: Counts, chance: Callable[[], float]) -> int:
    first, second = order[int(chance() * len(order))], order[int(chance() * len(order))]
    return first if counts[first] <= counts[second] else second


# How a balancer chooses: of its servers, the least recently chosen first, and by their numbers of open requests.
ROUTES = {"round robin": _round_robin, "least outstanding": _least_outstanding, "two choices": _two_choices}


class _Fleet:
    """The servers, their queues and the balancers, while requests arrive."""

    def __init__(
        self, server: Server, count: int, route: str, speeds: Sequence[float], balancers: int, scaling: Scaling | None
    ) -> None:
        self._server, self._route, self._speeds, self._scaling = server, ROUTES[route], speeds, scaling
        limit = len(speeds)
        self._queues: list[deque[tuple[float, int]]] = [deque() for _ in range(limit)]
        self._busy, self._draining = [False] * limit, set[int]()
        self._orders = [[*range(count)] for _ in range(balancers)]
        self._counts = [[0] * limit for _ in range(balancers)]
        self._spare, self._starting = [*range(count, limit)], 0
        self._events: list[tuple[float, int, int, Any]] = []
        self._pushed = numbers()
        self._due = [0.0] * limit  # when a batch that is not full has to start
        self._random = random.Random(0)
        self._computed_s, self._answered, self._wanted = 0.0, 0, deque[tuple[float, int]]()
        self.waits: list[float] = []
        self.latencies: list[float] = []
        self.batches, self.server_s = 0, 0.0

    def run(self, arrivals: Times) -> None:
        events, chance, balancers = self._events, self._random.random, len(self._orders)
        if self._scaling:
            self._push(self._scaling.interval_s, _CONTROL, None)
        for now in arrivals.tolist():
            while events and events[0][0] <= now:
                self._happen(*heapq.heappop(events))
            balancer = int(chance() * balancers) if balancers > 1 else 0
            order, counts = self._orders[balancer], self._counts[balancer]
            chosen = self._route(order, counts, chance)
            order.remove(chosen)
            order.append(chosen)
            counts[chosen] += 1
            self._queues[chosen].append((now, balancer))
            if not self._busy[chosen]:
                self._start_batch(chosen, now)
        if not self._scaling:
            self.server_s = len(self._orders[0]) * float(arrivals[-1])
        while events:
            event = heapq.heappop(events)
            if event[2] != _CONTROL:
                self._happen(*event)

    def _push(self, time: float, kind: int, what: Any) -> None:
        heapq.heappush(self._events, (time, next(self._pushed), kind, what))

    def _happen(self, now: float, _: int, kind: int, what: Any) -> None:
        if kind == _DONE:
            number, batch = what
            for _arrived, balancer in batch:
                self._counts[balancer][number] -= 1
            self._busy[number] = False
            self._answered += len(batch)
            if self._queues[number]:
                self._start_batch(number, now)
            elif number in self._draining:
                self._draining.remove(number)
                self._spare.append(number)
        elif kind == _DELAYED:
            if self._queues[what] and not self._busy[what]:
                self._start_batch(what, now)
        elif kind == _STARTED:
            self._starting -= 1
            for order in self._orders:
                order.append(what)
        else:
            self._control(now)

    def _start_batch(self, number: int, now: float) -> None:
        """Start a batch on a free instance, unless its oldest request still waits for others."""
        queue, server = self._queues[number], self._server
        if len(queue) < server.max_batch and now < (due := queue[0][0] + server.delay_s):
            if self._due[number] != due:
                self._due[number] = due
                self._push(due, _DELAYED, number)
            return
        batch = [queue.popleft() for _ in range(min(len(queue), server.max_batch))]
        taken = (server.batch_s + server.request_s * len(batch)) / self._speeds[number]
        if server.variation:
            shape = server.variation**-2
            taken *= self._random.gammavariate(shape, 1 / shape)
        self._busy[number] = True
        self.batches += 1
        self._computed_s += taken
        self.waits.extend(now - arrived for arrived, _ in batch)
        self.latencies.extend(now + taken - arrived for arrived, _ in batch)
        self._push(now + taken, _DONE, (number, batch))

    def _control(self, now: float) -> None:
        scaling = self._scaling
        assert scaling
        ready = self._orders[0]
        count = len(ready) + self._starting
        self.server_s += scaling.interval_s * (count + len(self._draining))
        if scaling.signal == "queue":
            total = float(sum(len(self._queues[number]) for number in ready))
        else:
            total = (self._computed_s if scaling.signal == "busy" else self._answered) / scaling.interval_s
        signal = total / len(ready)
        self._computed_s, self._answered = 0.0, 0
        ratio = signal / scaling.target
        wanted = count if abs(ratio - 1) <= TOLERANCE else max(1, min(ceil(len(ready) * ratio), 2 * count))
        self._wanted.append((now, wanted))
        while self._wanted[0][0] <= now - scaling.stable_s:
            self._wanted.popleft()
        for _ in range(min(wanted - count, len(self._spare))):
            self._starting += 1
            self._push(now + scaling.start_s, _STARTED, self._spare.pop())
        share = scaling.shrinking
        most = count if share is None else max(1, int(count * share * scaling.interval_s / 60))
        for _ in range(min(count - max(each for _, each in self._wanted), len(ready) - 1, most)):
            number = min(ready, key=self._counts[0].__getitem__)
            for order in self._orders:
                order.remove(number)
            if self._busy[number]:
                self._draining.add(number)
            else:
                self._spare.append(number)
        self._push(now + scaling.interval_s, _CONTROL, None)


def simulate(
    arrivals: Times,
    server: Server,
    count: int = SERVERS,
    route: str = "least outstanding",
    *,
    speeds: Sequence[float] | None = None,
    balancers: int = 1,
    scaling: Scaling | None = None,
) -> Outcome:
    """Send requests to servers until all are answered. The same arguments give the same outcome.

    Args:
        arrivals: When the requests come, in seconds, ascending.
        server: What each server does.
        count: How many servers there are, or at first if they are scaled.
        route: A key of ``ROUTES``.
        speeds: Of each server that there may be, 1 by default.
        balancers: Requests go to one of so many by chance; each knows only the requests that it has sent itself.
        scaling: The autoscaler. Default: the number of servers does not change.
    """
    fleet = _Fleet(server, count, route, speeds or [1.0] * (SERVERS if scaling else count), balancers, scaling)
    fleet.run(arrivals)
    skipped = int(WARMUP * len(fleet.latencies))
    waits, latencies = (np.array(values[skipped:]) for values in (fleet.waits, fleet.latencies))
    return Outcome(waits, latencies, fleet.server_s, fleet.batches)


def poisson(rate: float, requests: int, seed: int = 0) -> Times:
    """Arrivals of independent users, ``rate`` per second."""
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, requests))
