"""Errors as OpenAI's API has them.

::

    {"error": {"message": "...", "type": "invalid_request_error", "param": "messages.0.role", "code": "..."}}
"""

from __future__ import annotations

from typing import Any

from pytriton.llm.requests import RequestTooLargeError, WrongRequestError
from pytriton.rest.errors import RestError, Send, send_error
from pytriton.signature.problems import Problem

__all__ = ["is_openai", "no_model", "no_route", "of_wrong", "openai_error", "refuse"]

ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models", "/v1/models/{model}")
UNKNOWN_URL = "UNKNOWN_URL"
INVALID, RATE, SERVER = "invalid_request_error", "rate_limit_exceeded", "server_error"
CODES = {401: "invalid_api_key", 404: "model_not_found", 429: RATE}


class OpenAIError(RestError):
    """A RestError whose body is of OpenAI's form."""

    def body(self) -> dict[str, Any]:
        """The object that the client gets."""
        kind = RATE if self.status == 429 else SERVER if self.status >= 500 else INVALID
        path = self.details[0].path if self.details else ()
        param = ".".join(map(str, path)) or None
        code = self.code.lower() if self.code == UNKNOWN_URL else CODES.get(self.status, self.code.lower())
        return {"error": {"message": self.message, "type": kind, "param": param, "code": code}}


def openai_error(error: RestError) -> OpenAIError:
    """An error of the app as one of this form; values that do not fit are 400 here."""
    status = 400 if error.status == 422 else error.status
    return OpenAIError(status, error.code, error.message, error.details, error.headers)


def of_wrong(error: WrongRequestError) -> RestError:
    """The error for a body that is no request."""
    if isinstance(error, RequestTooLargeError):
        return RestError(413, "BODY_TOO_LARGE", str(error))
    details = [Problem(path, message, "") for path, message in error.problems]
    return RestError(400, "INVALID_VALUE" if details else "INVALID_REQUEST", str(error), details)


def no_model(name: str, what: str) -> RestError:
    """The error for a model that does not do what a route asks."""
    return RestError(404, "NOT_FOUND", f"the model {name!r} does not exist, or is none for {what}")


def no_route(path: str) -> RestError:
    """The error for a route of OpenAI's API that the app does not have."""
    text = f"there is no route {path!r}; of OpenAI's API there are {', '.join(ROUTES)}"
    return openai_error(RestError(404, UNKNOWN_URL, text))


def is_openai(scope: Any) -> bool:
    """Whether a request is for a route of OpenAI's API, served or not."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path.startswith("/v1/") and ":" not in path  # KServe's routes end with a colon and a verb


async def refuse(scope: Any, send: Send, error: RestError) -> None:
    """Answer a request with an error, in the form of its route."""
    await send_error(send, openai_error(error) if is_openai(scope) else error)
