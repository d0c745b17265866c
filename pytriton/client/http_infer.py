"""An inference as a request of HTTP; the same for the synchronous client and that for asyncio."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

__all__ = ["InferRequest", "infer_request"]

_COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


class InferRequest(NamedTuple):
    """What is posted.

    Attributes:
        uri: Below the server's path.
        headers: Of the request.
        body: JSON, and the tensors' data.
    """

    uri: str
    headers: dict[str, Any]
    body: bytes


def infer_request(
    lib: Any,
    model_name: str,
    inputs: list[Any],
    model_version: str = "",
    headers: dict[str, Any] | None = None,
    request_compression_algorithm: str | None = None,
    response_compression_algorithm: str | None = None,
    **options: Any,
) -> InferRequest:
    """The request for an inference; arguments are those of tritonclient's ``infer``.

    Args:
        lib: ``tritonclient.http`` or ``tritonclient.http.aio``.
        options: The others, which become a part of the body.
    """
    headers = {} if headers is None else headers
    body, json_size = lib.InferenceServerClient.generate_request_body(inputs, **options)
    if request_compression_algorithm is not None:
        headers["Content-Encoding"] = request_compression_algorithm
        body = _COMPRESS[request_compression_algorithm](body)
    if response_compression_algorithm is not None:
        headers["Accept-Encoding"] = response_compression_algorithm
    if json_size is not None:
        headers["Inference-Header-Content-Length"] = json_size
    version = f"/versions/{quote(model_version, safe='')}" if model_version else ""
    return InferRequest(f"v2/models/{quote(model_name, safe='')}{version}/infer", headers, body)
