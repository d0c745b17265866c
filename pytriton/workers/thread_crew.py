"""Callables of this process, each with a thread that waits for batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pytriton.exceptions import PyTritonValidationError
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
        self._functions = functions
        self._served = served
        self._callables: list[ServedCallable] = []
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
        functions = None if isinstance(infer, Processes) else callables(infer)
        kinds = [is_async(function) for function in self._functions]
        if functions is None or [is_async(function) for function in functions] != kinds:
            raise PyTritonValidationError(
                f"model {self._served.config.model_name!r} has {len(kinds)} instances; rebind() takes as many "
                "callables, coroutine functions in place of coroutine functions and plain ones in place of plain ones. "
                "Unbind the model and bind it again to change that"
            )
        for function in functions:
            attach(function, self._served.context, self._served.config)
        for function, served_callable in zip(functions, self._callables, strict=False):  # nothing before start()
            served_callable.rebind(function)
        self._detach()
        self._functions = functions

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
