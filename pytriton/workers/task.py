"""What a worker process is told when it starts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.worker.inference import Options

__all__ = ["Task", "log_levels"]


@dataclass(frozen=True)
class Task:
    """All that a worker needs; it travels pickled.

    Attributes:
        name: Of the worker.
        factory: Makes the inference callable.
        device: What the factory is told; not at all if ``takes_device`` is false.
        takes_device: Whether the factory has a parameter for it.
        path: Of the instance's socket, on which the launching process listens.
        config: Of the model.
        options: How the callable is called.
        trace_config: Of the server, if this worker has to make a tracer.
        max_requests: After how many the worker asks to be replaced; None is never.
        cores: To keep to; None is all.
        levels: Of the loggers, by name.
    """

    name: str
    factory: Callable[..., Any]
    device: str | None
    takes_device: bool
    path: str
    config: TritonModelConfig
    options: Options
    trace_config: Sequence[str] | None
    max_requests: int | None
    cores: Sequence[int] | None
    levels: dict[str, int]

    def make(self) -> Any:
        """Call the factory; returns the inference callable."""
        return self.factory(device=self.device) if self.takes_device else self.factory()


def log_levels() -> dict[str, int]:
    """The levels that loggers of this process were given, by their names; the root's is empty."""
    named = logging.root.manager.loggerDict.copy()  # another thread may add to it
    given = {name: logger.level for name, logger in named.items() if isinstance(logger, logging.Logger)}
    return {**{name: level for name, level in given.items() if level}, "": logging.root.level}
