"""What a client may ask for with each of its requests, beside the inputs."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, Literal

from pytriton.client.arguments import check_text, check_timeout
from pytriton.client.exceptions import PyTritonClientValueError

__all__ = ["DEFAULT_OPTIONS", "RequestOptions"]

_LARGEST_COUNT = 2**31 - 1
_LONGEST_S = 2**63 // 10**6  # microseconds travel as a 64-bit integer


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """Options of the requests that one client, or one view of it, sends.

    Args:
        priority: Level in the model's queue: 1 is the highest, the model's ``priority_levels`` the lowest; 0 is the
            model's default. A model without priorities ignores it.
        server_timeout_s: How long the request may wait in the server's queue, counted in microseconds there. It works
            where the model's queue policy has ``allow_timeout_override`` and a ``default_timeout_microseconds`` that is
            longer; the server ignores it elsewhere. What waited too long is only found when an instance gets free.
        request_id: Sent as the request's id, which the server logs and traces; None numbers the client's requests;
            those of streams have a random part too.
        compression: ``gzip`` or ``deflate``; None is uncompressed. Over HTTP, of request and response; over gRPC, of
            the request, because there the server's ``grpc_infer_response_compression_level`` decides about responses.
        split_batches: Send an ``infer_batch`` of more rows than the model's ``max_batch_size`` in parts, one after the
            other, and join the answers.
        retries: How often a call is made again after the connection failed, or the server was unavailable. For models
            that may be called twice with the same request, because a lost answer is no sign of a lost request.
        inference_timeout_s: Bounds each call to the server, so each part of a split batch and each try, in seconds;
            None is the client's.

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

    def __post_init__(self) -> None:
        for name, hint in (
            ("priority", "1 for the highest level, 0 for the model's default"),
            ("retries", "0 for none"),
        ):
            object.__setattr__(self, name, _count(name, getattr(self, name), hint))
        for name in ("server_timeout_s", "inference_timeout_s"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_timeout(name, getattr(self, name), math.inf))
        if self.server_timeout_s is not None and self.server_timeout_s > _LONGEST_S:
            raise PyTritonClientValueError(
                f"server_timeout_s is {self.server_timeout_s}, which is too long; pass None for no timeout"
            )
        if self.request_id is not None:
            _check_request_id(self.request_id)
        if self.compression not in (None, "gzip", "deflate"):
            raise PyTritonClientValueError(
                f"compression must be 'gzip', 'deflate', or None for none, got {self.compression!r}"
            )
        if not isinstance(self.split_batches, bool):
            raise PyTritonClientValueError(f"split_batches must be True or False, got {self.split_batches!r}")

    def arguments(self, request_id: str) -> dict[str, Any]:
        """The options that travel with the request, as arguments of tritonclient's ``infer``.

        Args:
            request_id: Used where the options have none.
        """
        arguments: dict[str, Any] = {"request_id": request_id if self.request_id is None else self.request_id}
        if self.priority:
            arguments["priority"] = self.priority
        if self.server_timeout_s is not None:
            arguments["timeout"] = _microseconds(self.server_timeout_s)
        return arguments


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


DEFAULT_OPTIONS = RequestOptions()
