"""What the death of one of two workers under load costs."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request

from rounds import Case, read_load, start_load
from systems import MODEL, BenchError, Host
from wire import HOST
from worker_hosts import Form, WorkerHosts, workers_of

__all__ = ["lose_one"]

POLL_S = 0.005
LEAD_S = 1.0  # the load generator's start
RESTART_S = 3.0  # at most, before the load ends
RESTART_TIMEOUT_S = 60.0
READY = "is ready after"


def lose_one(hosts: WorkerHosts, form: Form, case: Case) -> dict[str, float]:
    """Kill one of two workers with requests in flight.

    The throughput is what the server counts, before the kill and from then on until the new worker has worked as long.
    What is missing then, divided by what one worker answers, is for how long there was one worker less.
    """
    seconds = hosts.timing.seconds
    with hosts.start(form) as host:
        host.wait_first_answer()
        load = start_load(host, case, LEAD_S + 2 * seconds + RESTART_S, 0)
        time.sleep(LEAD_S)
        before = _Count(host)
        time.sleep(seconds)
        killed, ready = _Count(host), host.output().count(READY)
        rate = killed.since(before)
        os.kill(workers_of(host)[0], signal.SIGKILL)
        restart_s = _seconds_until_ready(host, ready)
        time.sleep(seconds)
        after = _Count(host)
        missing = rate * (after.at_s - killed.at_s) - (after.answered - killed.answered)
        found = read_load(host, case, load)
        hosts.stop(host)
    return {
        "requests/s before": rate,
        "failed requests": found.errors,
        "restart s": restart_s,
        "one worker's seconds lost": missing / (rate / form.workers),
    }


class _Count:
    """How many requests the server has answered well until now."""

    def __init__(self, host: Host) -> None:
        url = f"http://{HOST}:{host.ports['http']}/v2/models/{MODEL}/stats"
        with urllib.request.urlopen(url, timeout=RESTART_TIMEOUT_S) as answer:
            (model,) = json.load(answer)["model_stats"]
        self.at_s = time.perf_counter()
        self.answered = int(model["inference_stats"]["success"]["count"])

    def since(self, before: _Count) -> float:
        """Answers per second."""
        return (self.answered - before.answered) / (self.at_s - before.at_s)


def _seconds_until_ready(host: Host, ready: int) -> float:
    """Until the host says once more than before that a worker is ready."""
    began = time.perf_counter()
    while host.output().count(READY) <= ready:
        if time.perf_counter() > began + RESTART_TIMEOUT_S:
            raise BenchError(
                f"no worker was ready {RESTART_TIMEOUT_S} s after the kill; the last lines:\n{host.tail()}"
            )
        time.sleep(POLL_S)
    return time.perf_counter() - began
