"""One inference, as its caller wants it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytriton.client.arguments import Parameters, check_headers, check_parameters
from pytriton.client.exceptions import PyTritonClientValueError
from pytriton.client.options import RequestOptions
from pytriton.client.trace_context import with_trace_context

__all__ = ["InferRequest"]


class InferRequest:
    """What the caller of an inference passed, checked as far as it can be without knowing the model.

    Args:
        inputs: Positional inputs.
        named_inputs: Inputs by name; only one of both may be given.
        parameters: The request's parameters.
        headers: The request's headers.
        sample: The arrays have no batch axis.
        options: What else the request asks for.

    Raises:
        PyTritonClientValueError: An argument is wrong.
    """

    __slots__ = ("headers", "inputs", "named_inputs", "options", "parameters", "sample")

    def __init__(
        self,
        inputs: Sequence[Any],
        named_inputs: Mapping[str, Any],
        parameters: Parameters,
        headers: Parameters,
        sample: bool,
        options: RequestOptions,
    ) -> None:
        if inputs and named_inputs:
            raise PyTritonClientValueError("pass the inputs either by position or by name, not both")
        self.inputs = inputs
        self.named_inputs = named_inputs
        self.parameters = check_parameters(parameters) if parameters is not None else None
        self.headers = with_trace_context(check_headers(headers) if headers is not None else {})
        self.sample = sample
        self.options = options
