"""A pool of threads: callables of this process, with one instance each."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from pytriton.composition.injection import callees_of, with_handles
from pytriton.decorators.signatures import check_callable
from pytriton.exceptions import PyTritonValidationError
from pytriton.introspection import override
from pytriton.model_config import ModelConfig
from pytriton.pool.inspection import call_example
from pytriton.pool.pool import Infer, InferFunc, ServedCallable, ServedModel, WorkerPool, Workers, WorkerStatus
from pytriton.signature.derive import Derived, derive
from pytriton.signature.examples import Example
from pytriton.signature.functions import name_of
from pytriton.signature.served import served_form
from pytriton.worker.context import attach
from pytriton.worker.instance import Instance
from pytriton.worker.results import is_async
from pytriton.worker.warmup import warm_up

__all__ = ["Callables", "ThreadWorkerPool", "workers_of"]


def workers_of(infer: Infer) -> Workers:
    """What the pool of a model is made of.

    Raises:
        PyTritonValidationError: Not Workers, not a callable and not a non-empty sequence of callables.
    """
    return infer if isinstance(infer, Workers) else Callables(_callables(infer))


class Callables(Workers):
    """Callables of this process.

    Attributes:
        functions: One per instance.
    """

    def __init__(self, functions: Sequence[InferFunc]) -> None:
        self.functions = functions

    @override
    def model_name(self) -> str:
        return name_of(self.functions[0])

    @override
    def instance_count(self) -> int:
        return len(self.functions)

    @override
    def derive(self, name: str, version: int, config: ModelConfig, examples: Sequence[Example]) -> Derived:
        return derive(self.functions[0], config, examples, call_example)

    @override
    def pool(self, model: ServedModel) -> WorkerPool:
        return ThreadWorkerPool(self.functions, model)


def _callables(infer: InferFunc | Sequence[InferFunc]) -> list[InferFunc]:
    functions = [infer] if callable(infer) else infer
    if not isinstance(functions, Sequence) or isinstance(functions, str) or not all(map(callable, functions)):
        raise PyTritonValidationError(
            f"infer_func is {infer!r}; give a callable, a list of callables, or pytriton.workers.Processes"
        )
    if not functions:
        raise PyTritonValidationError("infer_func is an empty list; give one callable per model instance")
    return list(functions)


def _callees(functions: Sequence[InferFunc]) -> frozenset[str]:
    return frozenset(name for function in functions for name in callees_of(function).values())


class ThreadWorkerPool(WorkerPool):
    """Calls a model's callables, one per instance, in threads of this process."""

    def __init__(self, functions: Sequence[InferFunc], model: ServedModel) -> None:
        super().__init__(model)
        self.workers: list[Instance] = []
        self.callees = _callees(functions)
        functions = [self._served_form(function) for function in functions]
        self._functions = functions
        self._callables: list[ServedCallable] = []
        for function in functions:
            check_callable(function, model.config)
        for function in functions:
            attach(function, model.context, model.config)

    @override
    def start(self, sockets: Path, on_disconnect: Callable[[], None], on_unrecoverable: Callable[[], None]) -> bool:
        config = self.model.config
        concurrent = config.decoupled or any(map(is_async, self._functions))
        for index, function in enumerate(self._functions):
            name = f"pytriton-{config.model_name}-loop-{index}"
            served = ServedCallable(function, self.model, concurrent, name, on_unrecoverable)
            self._callables.append(served)
            self.workers.append(served.listen(f"{sockets}.{index}", on_disconnect))
        for index in range(len(self._functions)):
            warm_up(f"{sockets}.{index}", config, self.model.options.warmup)
        return concurrent

    @override
    def statuses(self) -> list[WorkerStatus]:
        name, pid = self.model.config.model_name, os.getpid()
        return [
            WorkerStatus(
                f"{name}-{index}",
                "thread",
                "ready" if instance.is_alive() else "stopped",
                pid,
                batches=instance.batches(),
            )
            for index, instance in enumerate([*self.workers])
        ]

    @override
    def rebind(self, infer: Infer) -> None:
        functions = self._replacements(infer)
        for function in functions:
            attach(function, self.model.context, self.model.config)
        for function, served in zip(functions, self._callables, strict=False):  # there are none before start()
            served.rebind(function)
        self._detach()
        self._functions, self.callees = functions, _callees(functions)

    def _served_form(self, function: InferFunc) -> InferFunc:
        config = self.model.config
        served: InferFunc = served_form(with_handles(function, config.model_name, self.model.context.connector), config)
        return served

    def _replacements(self, infer: Infer) -> list[InferFunc]:
        """Check that the new callables can replace the present ones."""
        name, instead = self.model.config.model_name, "use bind(..., replace=True) to change that"
        if isinstance(infer, Workers):
            raise PyTritonValidationError(
                f"model {name!r} was bound with callables of this process, not with {type(infer).__name__}; {instead}"
            )
        functions = [self._served_form(function) for function in _callables(infer)]
        if len(functions) != len(self._functions):
            raise PyTritonValidationError(
                f"model {name!r} has {len(self._functions)} instances, and got {len(functions)} callables; give one "
                f"for each, or {instead}"
            )
        for index, (old, new) in enumerate(zip(self._functions, functions, strict=True)):
            if is_async(new) != is_async(old):
                was, got = ("async", "a plain function") if is_async(old) else ("a plain function", "async")
                raise PyTritonValidationError(
                    f"the callable of instance {index} of model {name!r} was {was}, and the new one is {got}, which "
                    f"takes another proxy; {instead}"
                )
            check_callable(new, self.model.config)
        return functions

    def _detach(self) -> None:
        """Release the callables, which may be large. Calls that are running keep their own reference."""
        for function in self._functions:
            self.model.context.model_configs.discard(function, self.model.config)

    @override
    def interrupt(self) -> None:
        pass  # threads start at once

    @override
    def stop(self) -> None:
        self.model.failures.flush()  # the program may end before the callables' threads do
        for instance in list(self.workers):
            instance.close()

    @override
    def join(self) -> None:
        pass  # threads may outlive the pool

    @override
    def close(self) -> None:
        self.stop()
        self.workers.clear()
        self._callables.clear()
        self._detach()
