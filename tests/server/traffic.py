"""Requests for the tests: one at a time, or queued up so that the server merges them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from typing import Any
from urllib.request import urlopen

from numpy.typing import NDArray
from tritonclient.utils import np_to_triton_dtype

from pytriton.client import ModelClient
from pytriton.model_config import DynamicBatcher
from tests.server.processes import DEADLINE_S, wait_for

Arrays = dict[str, NDArray[Any]]
BATCHER_S = 0.02  # the server counts a request before its batcher has looked at it


def batches_of(rows: int) -> DynamicBatcher:
    """Waits until the requests make a batch of exactly so many rows, however long each takes to reach the batcher."""
    return DynamicBatcher(preferred_batch_size=[rows], max_queue_delay_microseconds=int(DEADLINE_S * 1e6))


class Gate:
    """Holds a callable up until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._open = threading.Event()

    def wait(self) -> None:
        """Called by the callable."""
        self.entered.set()
        assert self._open.wait(DEADLINE_S), "nobody opened the gate"

    def open(self) -> None:
        self._open.set()


class Traffic:
    """Sends requests over one protocol to a server.

    Args:
        url: Of the server's endpoint, with its scheme.
        metrics_url: Of the server's metrics.
    """

    def __init__(self, url: str, metrics_url: str) -> None:
        self.url = url
        self._metrics_url = metrics_url

    def infer(self, model: str, *inputs: Any, sample: bool = False, **options: Any) -> Arrays:
        """One batch, or one sample, through a ModelClient of its own."""
        with ModelClient(self.url, model) as client:
            return (client.infer_sample if sample else client.infer_batch)(*inputs, **options)

    def infer_bare(
        self, model: str, inputs: Mapping[str, NDArray[Any]], outputs: Sequence[str] | None = None, **options: Any
    ) -> Arrays:
        """One request through tritonclient: any inputs, and the outputs that come back."""
        scheme, _, address = self.url.partition("://")
        lib = import_module(f"tritonclient.{scheme}")
        tensors = []
        for name, array in inputs.items():
            tensors.append(lib.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
            tensors[-1].set_data_from_numpy(array)
        wanted = None if outputs is None else [lib.InferRequestedOutput(name) for name in outputs]
        with lib.InferenceServerClient(address) as client:
            result = client.infer(model, tensors, outputs=wanted, **options)
        response = result.get_response()
        names = [out["name"] for out in response["outputs"]] if scheme == "http" else [o.name for o in response.outputs]
        return {name: result.as_numpy(name) for name in names}

    def merge(self, model: str, gate: Gate, calls: Sequence[Callable[[], Any]]) -> list[Future[Any]]:
        """Make calls whose requests wait for the gate, in this order, and so are merged where the server merges.

        Tests that count on the sizes of the batches have a model with :func:`batches_of`.

        Args:
            model: Its callable waits for the gate.
            gate: Is opened when all requests are there.
            calls: The first is one request alone, which keeps the model busy; each of the others is one request.

        Returns:
            The finished calls.
        """
        with ThreadPoolExecutor(len(calls)) as pool:
            try:
                made = [pool.submit(calls[0])]
                assert gate.entered.wait(DEADLINE_S)
                for count, call in enumerate(calls[1:], 1):
                    made.append(pool.submit(call))
                    wait_for(lambda: self._pending(model) == count, f"{count} requests to wait")  # noqa: B023
                time.sleep(BATCHER_S)
            finally:
                gate.open()
        return made

    def metrics(self) -> str:
        """The server's metrics."""
        with urlopen(self._metrics_url, timeout=DEADLINE_S) as answer:
            return str(answer.read().decode())

    def _pending(self, model: str) -> int:
        return pending_requests(self._metrics_url, model)


def pending_requests(metrics_url: str, model: str) -> int:
    """Requests that the server accepted and did not start yet."""
    with urlopen(metrics_url, timeout=DEADLINE_S) as answer:
        lines = answer.read().decode().splitlines()
    prefix = f'nv_inference_pending_request_count{{model="{model}",'
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith(prefix))
