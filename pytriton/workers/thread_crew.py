"""Callables of this process, each with a thread that waits for batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pytriton.decorators.signatures import check_callable
from pytriton.exceptions import PyTritonValidationError
from pytriton.signature.served import served as typed
from pytriton.worker.context import attach
from pytriton.worker.results import is_async
from pytriton.worker.warmup import warm_up
from pytriton.workers.crew import Infer, InferFunc, Member
from pytriton.workers.processes import Processes
from pytriton.workers.served_callable import Served, ServedCallable

__all__ = ["ThreadCrew", "callables"]


def callables(infer: Infer) -> list[InferFunc]:
    """The callables of a model, one per instance.

    Raises:
        PyTritonValidationError: Not a callable and not a non-empty sequence of callables.
    """
    functions = [infer] if callable(infer) else infer
    if not isinstance(functions, Sequence) or isinstance(functions, str) or not all(map(callable, functions)):
        raise PyTritonValidationError(
            f"infer_func is {infer!r}; give a callable, a list of callables, or pytriton.workers.Processes"
        )
    if not functions:
        raise PyTritonValidationError("infer_func is an empty list; give one callable per model instance")
    return list(functions)


class ThreadCrew:
    """Has a model's callables called in threads.

    Args:
        functions: One callable per instance.
        served: The model.
    """

    def __init__(self, functions: Sequence[InferFunc], served: Served) -> None:
        self.members: list[Member] = []
        functions = [typed(function, served.config) for function in functions]
        self._functions = functions
        self._served = served
        self._callables: list[ServedCallable] = []
        for function in functions:
            check_callable(function, served.config)
        for function in functions:
            attach(function, served.context, served.config)

    def start(self, sockets: Path, on_disconnect: Callable[[], None], on_unrecoverable: Callable[[], None]) -> bool:
        """As :meth:`Crew.start`."""
        config = self._served.config
        several = config.decoupled or any(map(is_async, self._functions))
        for index, function in enumerate(self._functions):
            name = f"pytriton-{config.model_name}-loop-{index}"
            self._callables.append(ServedCallable(function, self._served, several, name, on_unrecoverable))
            self.members.append(self._callables[-1].listen(f"{sockets}.{index}", on_disconnect))
        for index in range(len(self._functions)):
            warm_up(f"{sockets}.{index}", config, self._served.options.warmup)
        return several

    def rebind(self, infer: Infer) -> None:
        """As :meth:`Crew.rebind`."""
        functions = self._checked(infer)
        for function in functions:
            attach(function, self._served.context, self._served.config)
        for function, served_callable in zip(functions, self._callables, strict=False):  # nothing before start()
            served_callable.rebind(function)
        self._detach()
        self._functions = functions

    def _checked(self, infer: Infer) -> list[InferFunc]:
        """The callables that may replace those that there are."""
        name, instead = self._served.config.model_name, "use bind(..., replace=True) to change that"
        if isinstance(infer, Processes):
            raise PyTritonValidationError(
                f"model {name!r} was bound with callables of this process, not with Processes; {instead}"
            )
        functions = [typed(function, self._served.config) for function in callables(infer)]
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
            check_callable(new, self._served.config)
        return functions

    def _detach(self) -> None:
        """Let go of the callables, which may be large; calls that run know their model by themselves."""
        for function in self._functions:
            self._served.context.model_configs.discard(function, self._served.config)

    def interrupt(self) -> None:
        """As :meth:`Crew.interrupt`; nothing here takes long."""

    def disconnect(self) -> None:
        """As :meth:`Crew.disconnect`."""
        self._served.failures.flush()  # the program may end before the callables' threads do
        for member in list(self.members):
            member.close()

    def close(self) -> None:
        """As :meth:`Crew.close`."""
        self.disconnect()
        self.members.clear()
        self._callables.clear()
        self._detach()
