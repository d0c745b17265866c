"""Calls of commands to the app of a server."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

from pytriton.client.auth import Tls, TritonUrl
from pytriton.client.exceptions import PyTritonClientConnectionError, PyTritonClientInferenceServerError

__all__ = ["app_url", "post"]


def app_url(server: TritonUrl, tls: Tls | None) -> str:
    """Where the app's routes are at the server's HTTP port, or at its own; empty if that has none."""
    if server.scheme != "http" or server.socket:
        return ""
    return f"{'http' if tls is None else 'https'}://{server.without_scheme}"


def post(url: str, path: str, content: Any, tls: Tls, timeout_s: float, what: str, token: str | None = None) -> Any:
    """Send JSON to a route of the app, and return the JSON of the answer.

    Args:
        url: Of the app, or of the server's HTTP port, which has the app's routes too.
        tls: What to trust where the URL is https.
        what: What is sent, in messages.
        token: The server's access token.

    Raises:
        PyTritonClientInferenceServerError: It is refused.
        PyTritonClientConnectionError: The app cannot be reached.
    """
    secure = urllib.request.HTTPSHandler(context=tls.context())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), secure)  # no proxy gets the token
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    try:
        request = urllib.request.Request(f"{url}{path}", json.dumps(content).encode(), headers)
        with opener.open(request, timeout=timeout_s) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        told = error.reason
        with error, suppress(OSError, ValueError, KeyError, TypeError):  # it may be no app that answers
            told = json.load(error)["error"]["message"]
        raise PyTritonClientInferenceServerError(f"{url} refuses {what}: {told}") from error
    except (OSError, ValueError) as error:
        raise PyTritonClientConnectionError(f"{url} does not take {what}: {error}") from error
