"""What ``ModelClient.infer_batch`` costs over a call of bare tritonclient, on one connection each.

Blocks of calls of the one and of the other alternate in one process, on one server, so that both meet the same noise.
The bare call is what its careful user writes: tensors with ``set_data_from_numpy``, ``infer`` with the same requested
output, ``as_numpy``.

Usage: ``python scripts/blocking_load.py http --port 8000 --model double`` prints one line of JSON.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from time import perf_counter_ns

from caller import INIT_TIMEOUT_S, add_times, check_double, command_line, target_of, url
from tally import Result, quantiles
from tensors import Floats
from wire import HOST, LoadError, Target

from pytriton.client import ModelClient

__all__ = ["Calls", "alternate"]

BLOCK_CALLS = 50
Call = Callable[[], Floats]


@dataclass
class Calls:
    """Calls of one kind: latencies of those answered well, and the duration of the blocks that they were made in."""

    latencies_ns: list[int] = field(default_factory=list)
    errors: int = 0
    duration_ns: int = 0

    def block(self, call: Call) -> None:
        """Make some more calls, one after the other."""
        began_ns = perf_counter_ns()
        for _ in range(BLOCK_CALLS):
            sent_ns = perf_counter_ns()
            try:
                call()
            except Exception:  # two packages' errors have no common root
                self.errors += 1
            else:
                self.latencies_ns.append(perf_counter_ns() - sent_ns)
        self.duration_ns += perf_counter_ns() - began_ns

    def result(self, generator: str) -> Result:
        """What was measured.

        Raises:
            LoadError: Nothing was.
        """
        count = len(self.latencies_ns)
        if not count:
            raise LoadError(f"{generator} was not answered once, errors: {self.errors}")
        latencies_us = [latency_ns / 1000 for latency_ns in quantiles(self.latencies_ns)]
        return Result(generator, count, count, self.errors, count / self.duration_ns * 1e9, *latencies_us)


def alternate(calls: Mapping[str, Call], seconds: float) -> dict[str, Calls]:
    """Make calls of each kind for about ``seconds``, and one block of each at least.

    Each pass over the kinds is followed by one in the opposite order, so that none gains by its place.
    """
    found = {name: Calls() for name in calls}
    names = list(calls)
    end_ns = perf_counter_ns() + int(seconds * len(names) * 1e9)
    going = True
    while going:
        for name in names:
            found[name].block(calls[name])
        names.reverse()
        going = perf_counter_ns() < end_ns
    return found


def measure(protocol: str, target: Target, seconds: float, warmup_s: float) -> dict[str, Result]:
    """Results of ``pytriton`` and of ``tritonclient``, each measured for ``seconds``; errors are of the whole run.

    Raises:
        LoadError: An answer before or after the measurement is not the double of the input.
    """
    values = target.values
    with ExitStack() as closing:
        client = ModelClient(url(protocol, target), target.model, init_timeout_s=INIT_TIMEOUT_S)
        closing.callback(client.close)
        calls: dict[str, Call] = {
            "pytriton": lambda: client.infer_batch(INPUT=values)["OUTPUT"],
            "tritonclient": _bare_call(protocol, target, closing),
        }
        for call in calls.values():
            check_double(call(), values)
        warm, found = alternate(calls, warmup_s), alternate(calls, seconds)
        for call in calls.values():
            check_double(call(), values)
    for name, each in found.items():
        each.errors += warm[name].errors
    return {name: each.result(name) for name, each in found.items()}


def _bare_call(protocol: str, target: Target, closing: ExitStack) -> Call:
    lib = importlib.import_module(f"tritonclient.{protocol}")
    client = lib.InferenceServerClient(f"{HOST}:{target.port}")
    closing.callback(client.close)
    values, outputs = target.values, [lib.InferRequestedOutput("OUTPUT")]

    def call() -> Floats:
        tensor = lib.InferInput("INPUT", values.shape, "FP32")
        tensor.set_data_from_numpy(values)
        output: Floats = client.infer(target.model, [tensor], outputs=outputs).as_numpy("OUTPUT")
        return output

    return call


def main() -> None:
    """Measure once as the command line says."""
    parser = command_line("Compare ModelClient with bare tritonclient; prints JSON.")
    add_times(parser)
    chosen = parser.parse_args()
    found = measure(chosen.protocol, target_of(chosen), chosen.seconds, chosen.warmup)
    print(json.dumps({name: asdict(result) for name, result in found.items()}))


if __name__ == "__main__":
    main()
