"""Derives the tensors of a model from its callable, in this process or in a worker process."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Any, cast

from pytriton.decorators.signatures import check_factory
from pytriton.exceptions import PyTritonValidationError, PyTritonWorkerError
from pytriton.model_config import ModelConfig, Tensor
from pytriton.model_config.tensor import name_tensors
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.pool.pool import InferFunc
from pytriton.pool.processes import Processes, WorkerResources
from pytriton.pool.remote_workers import RayWorkers, RemoteWorkers
from pytriton.signature.derive import Derived, declared, derive
from pytriton.signature.examples import Example, examples_in
from pytriton.worker.context import Binding, TritonContext, current_binding
from pytriton.worker.results import Results

__all__ = ["Inspection", "tensors_of"]


@dataclass(frozen=True)
class Inspection:
    """The task of a worker process that derives a model's tensors and ends.

    Attributes:
        takes_device: Whether the factory has a parameter ``device``.
        examples: Of requests.
        log_levels: Of the launching process's loggers, by name.
    """

    factory: Callable[..., Any]
    takes_device: bool
    resources: WorkerResources
    config: ModelConfig
    examples: Sequence[Example]
    log_levels: dict[str, int]
    trace_config: Sequence[str] | None = None

    def report(self) -> tuple[str, Any]:
        """The report for the launching process; raises the exceptions of the factory."""
        from pytriton.pool.messages import dumps

        function = self.factory(device=self.resources.device_in_worker) if self.takes_device else self.factory()
        try:
            return "derived", dumps(derive(function, self.config, self.examples, call_example))
        except PyTritonValidationError as error:
            return "refused", str(error)


def tensors_of(
    infer: Sequence[InferFunc] | Processes | RemoteWorkers | RayWorkers,
    inputs: Sequence[Tensor] | None,
    outputs: Sequence[Tensor] | None,
    config: ModelConfig,
    example: Any,
) -> Derived:
    """The tensors of a model, declared or derived.

    Args:
        infer: Its callables, of which the first one is looked at; for Processes, a worker process makes one, is asked
            and ends.
        inputs: None derives them, and ``outputs`` with them.
        outputs: Likewise.
        config: Of the model.
        example: A request, or a list of requests: a dict from the names of inputs to values.

    Raises:
        PyTritonValidationError: They cannot be derived, or one of both is missing.
        PyTritonWorkerError: The worker process failed.
    """
    examples = examples_in(example)
    if inputs is not None and outputs is not None:
        return declared(inputs, outputs, config, examples)
    if inputs is not None or outputs is not None:
        lacking = "outputs" if outputs is None else "inputs"
        raise PyTritonValidationError(f"{lacking} are missing; give both, or leave both out to have them derived")
    if not isinstance(config, ModelConfig):
        raise PyTritonValidationError(f"config must be a ModelConfig, not {config!r}")
    if isinstance(infer, (RemoteWorkers, RayWorkers)):
        kind = type(infer).__name__
        raise PyTritonValidationError(f"inputs and outputs of a model with {kind} are missing; give both")
    if not isinstance(infer, Processes):
        return derive(infer[0], config, examples, call_example)
    return _derived_in_worker(infer, config, examples)


def call_example(call: Callable[[], Any], config: ModelConfig, inputs: Sequence[Tensor]) -> Any:
    """Make a call as if it were of a model; the first value of a stream, or the result.

    Args:
        call: Calls the callable.
        config: Of the model.
        inputs: Of the model.
    """
    model = TritonModelConfig(
        "example",
        batching=config.batching,
        max_batch_size=config.max_batch_size,
        decoupled=config.decoupled,
        inputs=name_tensors(inputs, "INPUT"),
    )

    def first() -> Any:
        current_binding.set(Binding(call, model, TritonContext()))
        results = Results()
        try:
            with closing(results.each(call(), decoupled=True)) as values:
                value, _ = next(values, (None, False))
            return next(value) if isinstance(value, Iterator) else value
        finally:
            results.close()

    context = copy_context()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return context.run(first)
    done: Future[Any] = Future()  # no other event loop may run in this thread
    thread = Thread(target=lambda: _settle(done, lambda: context.run(first)))
    thread.start()
    thread.join()
    return done.result()


def _settle(done: Future[Any], call: Callable[[], Any]) -> None:
    try:
        done.set_result(call())
    except BaseException as error:
        done.set_exception(error)


def _derived_in_worker(processes: Processes, config: ModelConfig, examples: Sequence[Example]) -> Derived:
    from pytriton.pool.messages import log_levels
    from pytriton.pool.supervisor import pickled
    from pytriton.pool.worker_process import WorkerProcess

    check_factory(processes.factory)
    resources = processes.resources()[0]
    spec = Inspection(processes.factory, processes.takes_device(), resources, config, examples, log_levels())
    failure = ""
    with socket.socket(socket.AF_UNIX) as unused:  # no proxy connects
        process = WorkerProcess("inspection", pickled(spec), resources.environment(), unused, Condition())
        for report, value in process.reports(processes.start_timeout_s):
            if report == "derived":
                process.wait()
                return cast(Derived, pickle.loads(value))
            if report == "refused":
                process.wait()
                raise PyTritonValidationError(value)
            failure = value
        ended = process.wait()
    raise PyTritonWorkerError(f"inputs and outputs cannot be derived: {failure or f'the worker ended with {ended}'}")
