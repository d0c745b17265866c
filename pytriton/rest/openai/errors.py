"""Errors as OpenAI's API has them.

::

    {"error": {"message": "...", "type": "invalid_request_error", "param": "messages.0.role", "code": "..."}}
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from pytriton.rest.errors import RestError, Send, send_error
from pytriton.signature.validation import Problem

__all__ = ["is_openai", "no_model", "no_route", "of_validation", "openai_error", "refuse"]

ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models", "/v1/models/{model}")
UNKNOWN_URL = "UNKNOWN_URL"
INVALID, RATE, SERVER = "invalid_request_error", "rate_limit_exceeded", "server_error"
CODES = {401: "invalid_api_key", 404: "model_not_found", 429: RATE}
MOST_PROBLEMS = 5


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
    """An error of the front as one of this form; values that do not fit are 400 here."""
    status = 400 if error.status == 422 else error.status
    return OpenAIError(status, error.code, error.message, error.details, error.headers)


def of_validation(error: ValidationError) -> RestError:
    """The error for a body that is no request."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        return RestError(400, "INVALID_REQUEST", f"the body is no JSON: {found[0]['msg']}")
    details = []
    for each in found[:MOST_PROBLEMS]:
        path = tuple(part for part in each["loc"] if isinstance(part, int) or part.isidentifier())
        details.append(Problem(path, each["msg"].removeprefix("Value error, "), ""))
    text = "; ".join(f"{'.'.join(map(str, each.path)) or 'the body'}: {each.expected}" for each in details)
    return RestError(400, "INVALID_VALUE", text, details)


def no_model(name: str, what: str) -> RestError:
    """The error for a model that does not do what a route asks."""
    return RestError(404, "NOT_FOUND", f"the model {name!r} does not exist, or is none for {what}")


def no_route(path: str) -> RestError:
    """The error for a route of OpenAI's API that the front does not have."""
    text = f"there is no route {path!r}; of OpenAI's API there are {', '.join(ROUTES)}"
    return openai_error(RestError(404, UNKNOWN_URL, text))


def is_openai(scope: Any) -> bool:
    """Whether a request is for a route of OpenAI's API, served or not."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path.startswith("/v1/") and ":" not in path  # KServe's routes end with a colon and a verb


async def refuse(scope: Any, send: Send, error: RestError) -> None:
    """Answer a request with an error, in the form of its route."""
    await send_error(send, openai_error(error) if is_openai(scope) else error)
