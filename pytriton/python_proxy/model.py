"""The proxy: the model that Triton's Python backend runs. It hands each batch to the worker and answers with the reply.

``execute`` is the data path on the server's side, through a :class:`SerialExecutor` or a :class:`ConcurrentExecutor`.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from functools import partial
from typing import Any, Protocol

import triton_python_backend_utils as pb_utils

from ..wire.connect import Connect, WorkerConnection, connect
from .abi import adapt, lend_inputs
from .codec import Codec
from .concurrent import ConcurrentExecutor
from .memory import close_to_others
from .placement import check_as_bound, instance_number
from .serial import SerialExecutor

ENDPOINT_FILE = "endpoint.json"


class Executor(Protocol):
    """Answers batches."""

    def execute(self, requests: list[Any]) -> list[Any] | None:
        """As :meth:`TritonPythonModel.execute`."""

    def close(self) -> None:
        """As :meth:`TritonPythonModel.finalize`."""


class TritonPythonModel:
    """One instance of a bound model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Connect to the worker of this instance; raising makes the server refuse to load the model."""
        close_to_others()
        lend_inputs()  # they are copied on their way to the worker
        folder = os.path.join(args["model_repository"], args["model_version"])
        with open(os.path.join(folder, ENDPOINT_FILE), encoding="utf-8") as file:
            endpoint = json.load(file)
        model_config = json.loads(args["model_config"])
        check_as_bound(model_config, endpoint["bound"])
        adapt(pb_utils, pb_utils.Tensor)
        codec = Codec(model_config, pb_utils.Tensor, endpoint.get("traced", False))
        instance = instance_number(model_config, args["model_instance_name"], args["model_instance_device_id"])
        hello = {"model": args["model_name"], "instance": args["model_instance_name"]}
        worker = WorkerConnection(worker_of(endpoint, f"{endpoint['prefix']}.{instance}", hello))
        limit = endpoint["batches_in_flight"]
        executor = SerialExecutor(worker, codec) if limit is None else ConcurrentExecutor(worker, codec, limit)
        ready = ready_input(model_config)
        self._executor: Executor = PlaceholderFilter(executor, ready) if ready else executor
        gc.collect()
        gc.freeze()

    def finalize(self) -> None:
        """Close the connection: the worker learns that no batch is in flight any more."""
        self._executor.close()

    def execute(self, requests: list[Any]) -> list[Any] | None:
        """Answer a batch: with the responses, or with None if they are sent later."""
        return self._executor.execute(requests)


def worker_of(endpoint: dict[str, Any], name: str, hello: dict[str, str]) -> Connect:
    """What connects to the worker of an instance.

    Args:
        endpoint: What the endpoint file says.
        name: Of the worker's socket.
        hello: Told to the worker.

    Raises:
        RuntimeError: It is on another machine, and pyzmq is not installed here.
    """
    if "remote" not in endpoint:
        return partial(connect, os.path.join(endpoint["folder"], name), hello)
    try:
        from ..cluster.proxy import connect as connect_remotely
    except ImportError as error:
        raise RuntimeError(
            "the program with the inference callable is on another machine, and the server's Python needs pyzmq to "
            f"reach it; install it for {sys.executable}: pip install pyzmq ({error})"
        ) from error
    told = {**hello, "socket": name, "serial": endpoint["batches_in_flight"] is None}
    return partial(connect_remotely, endpoint["remote"], told)


def ready_input(model_config: dict[str, Any]) -> str | None:
    """Name of the input that says whether a request is real; None if all are."""
    for item in model_config.get("sequence_batching", {}).get("control_input", ()):
        if any(control["kind"] == "CONTROL_SEQUENCE_READY" for control in item["control"]):
            return str(item["name"])
    return None


class PlaceholderFilter:
    """Takes the placeholders out of the batches of a model whose sequences have slots.

    A batch of the direct strategy has a place for each sequence of the instance. Where a sequence has no request just
    now, the server puts a placeholder with arbitrary inputs, so that the others keep their places. An input that the
    server adds to every request says which are real.

    Args:
        ready: Name of the input that says which are real; it has one element, 0 or 1.
    """

    def __init__(self, executor: Executor, ready: str) -> None:
        self._executor = executor
        self._ready = ready
        self.close = executor.close

    def execute(self, requests: list[Any]) -> list[Any] | None:
        """Answer a batch: with the responses, or with None if they are sent later."""
        real = [self._is_real(request) for request in requests]
        made = [request for request, is_real in zip(requests, real, strict=True) if is_real]
        answers = self._executor.execute(made) if made else []
        if answers is None:
            for request, is_real in zip(requests, real, strict=True):
                if not is_real:
                    final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                    request.get_response_sender().send(pb_utils.InferenceResponse([]), flags=final)
            return None
        each = iter(answers)
        return [next(each) if is_real else pb_utils.InferenceResponse([]) for is_real in real]

    def _is_real(self, request: Any) -> bool:
        return any(tensor.name() == self._ready and tensor.as_numpy().any() for tensor in request.inputs())
