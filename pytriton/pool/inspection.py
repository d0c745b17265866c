"""Derives the tensors of a model from its callable, in this process or in a worker process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any

from pytriton.exceptions import PyTritonValidationError
from pytriton.introspection import override
from pytriton.model_config import ModelConfig, Tensor
from pytriton.model_config.tensor import name_tensors
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.pool.messages import ProcessSpec, dumps
from pytriton.pool.pipes import MessagePipe
from pytriton.pool.pool import Workers
from pytriton.signature.derive import Derived, declared, derive
from pytriton.signature.examples import Example, examples_in
from pytriton.wire.control import DERIVED, REFUSED
from pytriton.worker.context import Binding, TritonContext, current_binding
from pytriton.worker.results import Results

__all__ = ["Inspection", "tensors_of"]


@dataclass(frozen=True, kw_only=True)
class Inspection(ProcessSpec):
    """The task of a worker process that derives a model's tensors, reports them and ends.

    Attributes:
        examples: Of requests.
    """

    config: ModelConfig
    examples: Sequence[Example]

    @override
    def start(self, pipe: MessagePipe, descriptors: Sequence[int]) -> Callable[[], None]:
        try:
            function = self.call_factory()
            return partial(pipe.send, DERIVED, dumps(derive(function, self.config, self.examples, call_example)))
        except PyTritonValidationError as error:
            return partial(pipe.send, REFUSED, str(error))


def tensors_of(
    name: str,
    version: int,
    workers: Workers,
    inputs: Sequence[Tensor] | None,
    outputs: Sequence[Tensor] | None,
    config: ModelConfig,
    example: Any,
) -> Derived:
    """The tensors of a model, declared or derived.

    Args:
        inputs: None derives them, and ``outputs`` with them.
        example: A request, or a list of requests: a dict from the names of inputs to values.

    Raises:
        PyTritonValidationError: They cannot be derived, or one of both is missing.
        PyTritonWorkerError: The worker that was asked failed, or there is none.
    """
    examples = examples_in(example)
    if inputs is not None and outputs is not None:
        return declared(inputs, outputs, config, examples)
    if inputs is not None or outputs is not None:
        lacking = "outputs" if outputs is None else "inputs"
        raise PyTritonValidationError(f"{lacking} are missing; give both, or leave both out to have them derived")
    if not isinstance(config, ModelConfig):
        raise PyTritonValidationError(f"config must be a ModelConfig, not {config!r}")
    return workers.derive(name, version, config, examples)


def call_example(call: Callable[[], Any], config: ModelConfig, inputs: Sequence[Tensor]) -> Any:
    """Make a call as if it were of a model; the first value of a stream, or the result."""
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
