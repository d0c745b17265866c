"""What clients are told of an exception: a text and a status code."""

from __future__ import annotations

import traceback

from pytriton.exceptions import ErrorCode, PyTritonRequestError
from pytriton.worker.messages import sendable

__all__ = ["describe", "text_of"]


def describe(error: BaseException, with_traceback: bool) -> dict[str, str]:
    """An exception of a callable as the metadata of a reply: ``message`` and ``code``.

    Args:
        error: A PyTritonRequestError says both itself. Of others it is class and message, and the code INTERNAL.
        with_traceback: Tell the traceback too; not that of a PyTritonRequestError, which is meant for clients.
    """
    if isinstance(error, PyTritonRequestError):
        return {"message": sendable(error.message), "code": error.code.value}
    if with_traceback:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    else:
        text = text_of(error)
    return {"message": sendable(text), "code": ErrorCode.INTERNAL.value}


def text_of(error: BaseException) -> str:
    """Class and message of an exception."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # an error's text is the user's code too
        return f"{type(error).__name__}: its text cannot be had"
