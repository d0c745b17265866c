"""Give a callable the requests behind its arrays."""

from __future__ import annotations

from typing import Any

from pytriton.decorators.calls import Wrapped, adding_decorator
from pytriton.decorators.inputs import requests_in

__all__ = ["with_requests"]


@adding_decorator("requests")
def with_requests(wrapped: Wrapped, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function with the list of requests as keyword argument ``requests`` too. Goes right above ``@batch``.

    That is how a function below ``@batch`` or ``@sample`` gets parameters and ids, and asks whether clients have gone.
    Inputs are better taken from the arrays: replacing those of a request makes ``@batch`` join them again.

    Raises:
        PyTritonRuntimeError: There is no list of requests.
        PyTritonValidationError: The list is empty.
    """
    return wrapped(*args, **{**kwargs, "requests": requests_in(args, "with_requests")})
