"""Calling again after a failure that may pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenacity import (
    DoSleep,
    RetryCallState,
    Retrying,
    stop_after_attempt,
    wait_random_exponential,
)

from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientServerUnavailableError,
    PyTritonClientTlsError,
)
from pytriton.client.flows import Call, Flow, Sleep

__all__ = ["retried"]

# The first pause is up to 0.2 s, each later one up to twice as long: a model is reloaded, and a server is started
# again, within some tenths of a second. Random, so that clients that failed together do not come back together.
_PAUSE = wait_random_exponential(multiplier=0.2, min=0.05, max=10)


def retried(call: Call, retries: int, check: Callable[[], None]) -> Flow[Any]:
    """Make a call, and make it again while the connection fails or the server is unavailable.

    Args:
        call: Bounded by its own timeout each time.
        retries: Most calls after the first one.
        check: Called before each retry; raises where the client was closed meanwhile.

    Raises:
        PyTritonClientError: Of the last try, or of the check.
    """
    # The callback has tenacity return at the end, where it would raise an error of its own.
    tries = Retrying(stop=stop_after_attempt(retries + 1), wait=_PAUSE, retry_error_callback=lambda _: None)
    tries.begin()
    state = RetryCallState(tries, fn=None, args=(), kwargs={})
    try:
        while True:
            try:
                return (yield call)
            except PyTritonClientError as error:
                if not _may_pass(error):
                    raise
                state.set_exception((type(error), error, error.__traceback__))
                step = tries.iter(state)
                if not isinstance(step, DoSleep):
                    raise
            state.prepare_for_next_attempt()
            yield Sleep(float(step))
            check()
    finally:
        # The error knows this frame, and the state the error: such a circle would keep the inputs in memory.
        del state


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, (PyTritonClientConnectionError, PyTritonClientServerUnavailableError)) and not isinstance(
        error, PyTritonClientTlsError
    )
