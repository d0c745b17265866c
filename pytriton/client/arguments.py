"""What callers pass beside tensors, checked before anything is sent: headers, parameters, options, names, timeouts."""

from __future__ import annotations

import importlib
import math
import operator
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from pytriton.client.exceptions import PyTritonClientValueError

__all__ = [
    "DEFAULT_MAX_RESPONSE_BYTES",
    "DEFAULT_OPTIONS",
    "LONGEST_TIMEOUT_S",
    "SEQUENCE",
    "InferRequest",
    "RequestOptions",
    "check_headers",
    "check_limit",
    "check_metadata",
    "check_model",
    "check_parameters",
    "check_text",
    "check_timeout",
    "check_token",
    "with_trace_context",
]

DEFAULT_MAX_RESPONSE_BYTES = 4 * 2**30
"""The default limit for responses, as they travel and after decompression."""

SEQUENCE = "sequence_id", "sequence_start", "sequence_end"
"""Options of a request of a sequence, and the names of the parameters that they travel as."""

Parameters = Mapping[str, str | int | bool] | None

_INT64 = range(-(2**63), 2**63)
_RESERVED = {*SEQUENCE, "priority", "timeout", "headers", "binary_data_output"}
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# What both HTTP and gRPC transmit unchanged; above all no line break, which would start another header.
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_METADATA_NAME = re.compile(r"[-_.0-9a-z]+")
_VERSION = re.compile(r"[0-9]{1,19}")  # the server's are 64-bit integers
_PROPAGATION = "opentelemetry.trace.propagation.tracecontext"
_LARGEST_COUNT = 2**31 - 1
LONGEST_TIMEOUT_S = 2**63 // 10**6  # microseconds travel as a 64-bit integer

# The client writes these itself: they tell where a message ends and how its body is encoded, or concern the connection.
_FRAMING = {
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "inference-header-content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """Options of the requests that one client, or one view of it, sends.

    Args:
        priority: Level in the model's queue: 1 is the highest, the model's ``priority_levels`` the lowest; 0 is the
            model's default. A model without priorities ignores it.
        server_timeout_s: How long the request may wait in the server's queue; rounded to microseconds. The server
            ignores it unless the model's queue policy has ``allow_timeout_override`` and a longer
            ``default_timeout_microseconds``. It checks the time only when an instance becomes free.
        request_id: The server logs and traces it. None numbers the client's requests; the ids of streams have a random
            part too.
        compression: ``gzip`` or ``deflate``; None is uncompressed. Over HTTP, of request and response; over gRPC, of
            the request, because there the server's ``grpc_infer_response_compression_level`` decides about responses.
        split_batches: Send an ``infer_batch`` of more rows than the model's ``max_batch_size`` in parts, one after the
            other, and join the outputs.
        retries: Most attempts after the first one, if the connection fails or the server is unavailable. The model may
            get the same request twice, because a response can be lost too.
        inference_timeout_s: Bounds each call to the server: each part of a split batch, and each attempt. In seconds;
            None is the client's.
        text_outputs: Outputs that a typed function returns as texts have ``str`` objects in place of ``bytes``, as
            ``call`` returns them.
        sequence_id: Number or text of the sequence that the request belongs to; its batch is not split.
        sequence_start: Whether it is the first request of the sequence.
        sequence_end: Whether it is the last one.

    Raises:
        PyTritonClientValueError: A value is out of its range or has another type.
    """

    priority: int = 0
    server_timeout_s: float | None = None
    request_id: str | None = None
    compression: Literal["gzip", "deflate"] | None = None
    split_batches: bool = False
    retries: int = 0
    inference_timeout_s: float | None = None
    text_outputs: bool = False
    sequence_id: int | str | None = None
    sequence_start: bool = False
    sequence_end: bool = False

    def __post_init__(self) -> None:
        for name, hint in (
            ("priority", "1 for the highest level, 0 for the model's default"),
            ("retries", "0 for none"),
        ):
            object.__setattr__(self, name, _count(name, getattr(self, name), hint))
        for name in ("server_timeout_s", "inference_timeout_s"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_timeout(name, getattr(self, name), math.inf))
        if self.server_timeout_s is not None and self.server_timeout_s > LONGEST_TIMEOUT_S:
            raise PyTritonClientValueError(
                f"server_timeout_s is {self.server_timeout_s}, which is too long; pass None for no timeout"
            )
        if self.request_id is not None:
            _check_request_id(self.request_id)
        if self.compression not in (None, "gzip", "deflate"):
            raise PyTritonClientValueError(
                f"compression must be 'gzip', 'deflate', or None for none, got {self.compression!r}"
            )
        for name in ("split_batches", "text_outputs", "sequence_start", "sequence_end"):
            if not isinstance(getattr(self, name), bool):
                raise PyTritonClientValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.sequence_id is not None:
            object.__setattr__(self, "sequence_id", _checked_sequence_id(self.sequence_id))
        elif self.sequence_start or self.sequence_end:
            raise PyTritonClientValueError("the start or end of a sequence needs its sequence_id")

    def arguments(self) -> dict[str, Any]:
        """The options but the id that travel with the request, as arguments of tritonclient's ``infer``."""
        arguments: dict[str, Any] = {}
        if self.priority:
            arguments["priority"] = self.priority
        if self.server_timeout_s is not None:
            arguments["timeout"] = _microseconds(self.server_timeout_s)
        if self.sequence_id is not None:
            arguments |= {name: getattr(self, name) for name in SEQUENCE}
        return arguments


class InferRequest:
    """The arguments of an inference, checked as far as that is possible without the model.

    Args:
        named_inputs: Inputs by name; only one of the two may be given.
        sample: The arrays have no batch axis.
        request_id: In place of that of the options.

    Raises:
        PyTritonClientValueError: An argument is wrong.
    """

    __slots__ = ("headers", "inputs", "named_inputs", "options", "parameters", "request_id", "sample")

    def __init__(
        self,
        inputs: Sequence[Any],
        named_inputs: Mapping[str, Any],
        parameters: Parameters,
        headers: Parameters,
        sample: bool,
        options: RequestOptions,
        request_id: str | None = None,
    ) -> None:
        if inputs and named_inputs:
            raise PyTritonClientValueError("pass the inputs either by position or by name, not both")
        self.inputs = inputs
        self.named_inputs = named_inputs
        self.parameters: Mapping[str, str | int | bool | float] | None = (
            check_parameters(parameters) if parameters is not None else None
        )
        self.headers = with_trace_context(check_headers(headers) if headers is not None else {})
        self.sample = sample
        self.options = options
        self.request_id = options.request_id if request_id is None else request_id


def check_parameters(parameters: Parameters) -> dict[str, str | int | bool]:
    """A copy of the request's parameters, empty for None.

    Raises:
        PyTritonClientValueError: It is no dict, a name is no text or reserved, or a value is not a str, bool or int
            of 64 bits.
    """
    checked = _check_items("parameters", parameters)
    for name, value in checked.items():
        if name in _RESERVED or name.startswith("triton_"):
            raise PyTritonClientValueError(f"parameter name {name!r} is reserved by the server; choose another one")
        if isinstance(value, int) and value not in _INT64:
            raise PyTritonClientValueError(f"parameter {name!r} is {value}, which is no 64-bit integer; send a str")
        check_text(f"parameter {name!r}", f"{name}{value}")
    return checked


def check_headers(headers: Parameters) -> dict[str, str]:
    """The request's headers with values as text, empty for None.

    Raises:
        PyTritonClientValueError: It is no dict, a name is no header name, reserved or given twice in different letter
            cases, or a value is not a str, int or bool, or has characters that a header cannot carry.
    """
    checked = {name: str(value) for name, value in _check_items("headers", headers).items()}
    for name, value in checked.items():
        if not _HEADER_NAME.fullmatch(name):
            raise PyTritonClientValueError(f"{name!r} is not a header name; use letters, digits and '-'")
        if name.lower() in _FRAMING:
            raise PyTritonClientValueError(
                f"header {name!r} is reserved: the client writes it itself; for compression use "
                "with_options(compression=...), for another host or path change the url"
            )
        _check_value(f"header {name!r} has value {value!r}", value)
    if len({name.lower() for name in checked}) < len(checked):
        raise PyTritonClientValueError(
            f"headers {', '.join(map(repr, checked))} have a name twice in different letter cases; give it once"
        )
    return checked


def check_metadata(headers: Mapping[str, object]) -> None:
    """Check that headers, which :func:`check_headers` has passed, can travel as gRPC's metadata as well.

    Raises:
        PyTritonClientValueError: A name has characters that gRPC refuses, or means something to gRPC itself.
    """
    for name in headers:
        lowered = name.lower()
        if not _METADATA_NAME.fullmatch(lowered):
            raise PyTritonClientValueError(
                f"{name!r} is not a name of gRPC metadata; use letters, digits, '-', '_' and '.'"
            )
        if lowered.startswith("grpc-") or lowered == "content-type":
            raise PyTritonClientValueError(f"header {name!r} is reserved by gRPC; choose another name")
        if lowered.endswith("-bin"):
            raise PyTritonClientValueError(
                f"header {name!r} would be binary metadata, as its name ends with '-bin'; choose another name"
            )


def check_token(access_token: str | None, name: str = "access_token") -> str:
    """The access token, if it can travel in a header. Messages show its name alone.

    Raises:
        PyTritonClientValueError: It is no text, empty, or has characters that a header cannot carry.
    """
    if not access_token:
        raise PyTritonClientValueError(f"{name} must not be empty")
    if not isinstance(access_token, str):
        raise PyTritonClientValueError(f"{name} must be a str, got {type(access_token).__name__}")
    _check_value(f"{name} is not printable", access_token)
    return access_token


def check_limit(name: str, limit: int | None) -> int | None:
    """A limit; None for none.

    Raises:
        PyTritonClientValueError: It is neither None nor an int above 0.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit <= 0):
        raise PyTritonClientValueError(f"{name} must be an int above 0, or None for no limit, got {limit!r}")
    return limit


def check_timeout(name: str, timeout_s: float | None, default_s: float) -> float:
    """The timeout in seconds, or the default for None.

    Raises:
        PyTritonClientValueError: It is not a number above 0.
    """
    if timeout_s is None:
        return default_s
    try:
        seconds = float(timeout_s)
    except (TypeError, ValueError):
        seconds = math.nan
    if not seconds > 0:
        raise PyTritonClientValueError(f"{name} must be a number of seconds above 0, got {timeout_s!r}")
    return seconds


def check_model(model_name: str, model_version: str | None) -> None:
    """Check a model's name and version, which become parts of the request's path.

    Raises:
        PyTritonClientValueError: The name is no text or empty, or cannot be that of a model; or the version is neither
            None nor the text of a number.
    """
    if not isinstance(model_name, str) or not model_name:
        raise PyTritonClientValueError(f"model_name must be a non-empty str, got {model_name!r}")
    if "/" in model_name or model_name in (".", ".."):
        raise PyTritonClientValueError(
            f"model_name must be the name of a model, without '/', got {model_name!r}; pass a version as model_version"
        )
    check_text(f"model_name {model_name!r}", model_name)
    if model_version is not None and not (isinstance(model_version, str) and _VERSION.fullmatch(model_version)):
        raise PyTritonClientValueError(
            f"model_version must be a str of digits such as '1', or None for the highest, got {model_version!r}"
        )


def check_text(what: str, text: str) -> None:
    """Check that a text has no lone surrogates.

    Raises:
        PyTritonClientValueError: It has; the message says of ``what``.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PyTritonClientValueError(f"{what} cannot be sent as UTF-8: {error}") from error


def _check_value(what: str, value: str) -> None:
    if not _HEADER_VALUE.fullmatch(value):
        raise PyTritonClientValueError(f"{what}; headers carry printable ASCII, so encode it, e.g. with base64")


def _check_items(what: str, items: Parameters) -> dict[str, str | int | bool]:
    if items is None:
        return {}
    if not isinstance(items, Mapping):
        raise PyTritonClientValueError(f"{what} must be a dict, got {type(items).__name__}")
    for name, value in items.items():
        if not isinstance(name, str):
            raise PyTritonClientValueError(f"{what} must have str names, got {name!r}")
        if not isinstance(value, (str, int)):  # a bool is an int
            raise PyTritonClientValueError(f"{what}[{name!r}] must be a str, int or bool, got {type(value).__name__}")
    return dict(items)


def with_trace_context(headers: dict[str, str]) -> dict[str, str]:
    """A request's headers, with the W3C trace context of the current OpenTelemetry span, if there is one.

    It imports nothing and needs no switch: a program that has a current span has loaded OpenTelemetry.

    Args:
        headers: The request's own, which are kept.

    Returns:
        The same, or with ``traceparent``, and ``tracestate`` if the span has one.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return headers
    if any(name.lower() == "traceparent" for name in headers):
        return headers
    context: dict[str, str] = {}
    importlib.import_module(_PROPAGATION).TraceContextTextMapPropagator().inject(context)
    return {**context, **headers}


def _microseconds(seconds: float) -> int:
    # 0 would be no timeout at all.
    return max(1, round(seconds * 1e6))


def _count(name: str, value: Any, hint: str) -> int:
    try:
        count = -1 if isinstance(value, bool) else operator.index(value)  # NumPy's integers, too
    except TypeError:
        count = -1
    if not 0 <= count <= _LARGEST_COUNT:
        raise PyTritonClientValueError(f"{name} must be an int from 0 to {_LARGEST_COUNT} ({hint}), got {value!r}")
    return count


def _check_request_id(request_id: str) -> None:
    if not isinstance(request_id, str) or not request_id:
        raise PyTritonClientValueError(f"request_id must be a non-empty str, or None for a number, got {request_id!r}")
    check_text(f"request_id {request_id!r}", request_id)


def _checked_sequence_id(sequence_id: Any) -> int | str:
    if isinstance(sequence_id, str) and sequence_id:
        check_text(f"sequence_id {sequence_id!r}", sequence_id)
        return sequence_id
    number = 0
    if not isinstance(sequence_id, (str, bool)):
        with suppress(TypeError):
            number = operator.index(sequence_id)  # NumPy's integers, too
    if not 0 < number in _INT64:
        raise PyTritonClientValueError(
            f"sequence_id must be an int from 1 to {_INT64[-1]}, a non-empty str, or None for none, got {sequence_id!r}"
        )
    return number


DEFAULT_OPTIONS = RequestOptions()
