"""What ``bind`` was not told of a model: found in its callable, here or in a worker process."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass
from threading import Thread
from typing import Any

from pytriton.decorators.signatures import check_factory
from pytriton.exceptions import PyTritonValidationError, PyTritonWorkerError
from pytriton.model_config import ModelConfig, Tensor
from pytriton.model_config.triton_model_config import TritonModelConfig, name_tensors
from pytriton.signature.derive import Derived, declared, derive
from pytriton.signature.examples import Example, examples_in
from pytriton.worker.context import Binding, TritonContext, current_binding
from pytriton.worker.results import Results
from pytriton.workers.crew import InferFunc
from pytriton.workers.pickling import dumps
from pytriton.workers.processes import Processes
from pytriton.workers.task import log_levels
from pytriton.workers.worker_process import WorkerProcess

__all__ = ["Inspection", "tensors_of"]


@dataclass(frozen=True)
class Inspection:
    """What a worker process is told that derives a model's tensors and ends; it travels pickled.

    Attributes:
        factory: Makes the inference callable.
        device: What the factory is told; not at all if ``takes_device`` is false.
        takes_device: Whether the factory has a parameter for it.
        config: Of the model.
        examples: Of requests.
        levels: Of the loggers, by name.
        cores: To keep to; None is all.
        trace_config: None.
    """

    factory: Callable[..., Any]
    device: str | None
    takes_device: bool
    config: ModelConfig
    examples: Sequence[Example]
    levels: dict[str, int]
    cores: Sequence[int] | None = None
    trace_config: Sequence[str] | None = None

    def derived(self) -> bytes:
        """What the callable tells, pickled; raises what the factory raises, and PyTritonValidationError."""
        function = self.factory(device=self.device) if self.takes_device else self.factory()
        return dumps(derive(function, self.config, self.examples, call_example))


def tensors_of(
    infer: Sequence[InferFunc] | Processes,
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
    check_factory(processes.factory)
    place = processes.places()[0]
    takes_device = processes.takes_device()
    task = Inspection(processes.factory, place.device_in_worker(), takes_device, config, examples, log_levels())
    try:
        pickled = dumps(task)
    except Exception as error:
        raise PyTritonWorkerError(
            f"the factory cannot be pickled, {type(error).__name__}: {error}; let it make what it needs instead of "
            "referring to it"
        ) from error
    with socket.socket(socket.AF_UNIX) as nobody:  # no proxy connects
        process = WorkerProcess("inspection", place.environment(), nobody)
        process.kill_after(processes.start_timeout_s)
        process.tell("task", pickled)
        found: Derived | None = None
        failure = ""
        for word, value in process.events():
            if word == "derived":
                found = pickle.loads(value)
            elif word == "refused":
                failure = value
            elif word == "failed":
                failure = f"the factory failed:\n{value}"
        ended = process.wait()
    if found is None:
        if failure and not failure.startswith("the factory failed"):
            raise PyTritonValidationError(failure)
        raise PyTritonWorkerError(f"the inputs and outputs cannot be derived, as {failure or f'its worker: {ended}'}")
    return found
