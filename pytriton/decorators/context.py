"""Give the callable access to the model that it serves."""

from __future__ import annotations

from typing import Any

from pytriton.constants import TRITON_CONTEXT_FIELD_NAME
from pytriton.decorators.calls import Wrapped, adding_decorator
from pytriton.worker.context import get_triton_context

__all__ = ["triton_context"]


@adding_decorator(TRITON_CONTEXT_FIELD_NAME)
def triton_context(wrapped: Wrapped, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function with the :class:`TritonContext` of its model as keyword argument ``triton_context``.

    Works at any position of a stack of decorators. ``triton_context.model_configs[callable]`` is the configuration.

    Raises:
        PyTritonValidationError: The function is not bound to a model.
    """
    context = get_triton_context(wrapped, instance)
    return wrapped(*args, **{**kwargs, TRITON_CONTEXT_FIELD_NAME: context})
