"""Waiting for a server and its models: what is asked, what is logged meanwhile, and when a model counts as missing."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientModelUnavailableError,
    PyTritonClientServerUnavailableError,
    PyTritonClientTimeoutError,
    PyTritonClientTlsError,
)
from pytriton.client.flows import (
    NETWORK_TIMEOUT_S,
    Deadline,
    Flow,
    Sleep,
    fetch_model_config,
    model_arguments,
    repository_index,
)
from pytriton.client.model_state import (
    LATEST_MODEL_VERSION,
    ModelState,
    find_model_state,
    is_listed,
    parse_http_response,
    suggestion,
)
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["wait_and_fetch", "wait_for_model", "wait_for_server"]

LOGGER = logging.getLogger("pytriton.client")

# A starting server is usually ready within some hundred milliseconds, so the first polls follow closely.
_POLL_STEP_S = 0.01
_POLL_MAX_S = 1.0

_FIRST_REPORT_S = 5.0
_REPORT_S = 10.0

# The first look is after half a second, and the error of a model that stays unknown comes within 5 s.
_LOOK_S = 0.5
_MISSING_S = 3.5


def wait_for_server(deadline: Deadline, interval_s: float | None = None) -> Flow[None]:
    """Wait until the server is live and ready.

    Args:
        deadline: When to give up.
        interval_s: Pause between two attempts; None starts with a short one.

    Raises:
        PyTritonClientTimeoutError: It was not at the deadline.
        PyTritonClientInferenceServerError: It does not say so without an access token.
    """
    wait = _Wait("the server", deadline, interval_s)
    for method in ("is_server_live", "is_server_ready"):
        while not (yield from wait.ask(method)):
            yield from wait.pause()
            if not deadline.left_s():
                raise wait.timeout()


def wait_for_model(
    model_name: str, model_version: str | None, deadline: Deadline, *, fail_if_missing: bool = False
) -> Flow[None]:
    """Wait until a model can serve, which includes waiting for the server.

    That other models are loading or broken makes the server "not ready", but does not matter here.

    Args:
        model_name: Its name.
        model_version: None is the highest.
        deadline: When to give up.
        fail_if_missing: Give up as soon as a server has not known the model for some seconds, all of which it was
            ready. It is waited for longer if the server was seen while it started, has no models at all yet, or lists
            the model as not loaded.

    Raises:
        PyTritonClientModelUnavailableError: The server was reached, but had no such model or version.
        PyTritonClientTimeoutError: The model was not ready at the deadline.
        PyTritonClientInferenceServerError: The server does not say so without an access token.
    """
    model = f"model {model_name!r} (version {model_version or LATEST_MODEL_VERSION})"
    arguments = model_arguments(model_name, model_version)
    wait = _Wait(model, deadline)
    absence = _Absence(model_name, model_version, deadline)
    # Shortly before the deadline, time is kept back to learn why the model is not there.
    reserve_s = min(0.2 * deadline.timeout_s, 0.5)
    while deadline.left_s(reserve_s):
        if (yield from wait.ask("is_model_ready", arguments)):
            return
        if (yield from absence.lasts(wait)) and fail_if_missing:
            raise PyTritonClientModelUnavailableError(
                f"{model} is not available on the server: {(yield from absence.verdict())}. To wait for a model that "
                "the server gets later, call wait_for_model with a timeout"
            )
        yield from wait.pause(reserve_s)
    missing = yield from absence.verdict()
    while deadline.left_s():
        if (yield from wait.ask("is_model_ready", arguments)):
            return
        yield from wait.pause()
    if missing:
        raise PyTritonClientModelUnavailableError(
            f"{model} is not available on the server and was not within {deadline.timeout_s:g} s: {missing}. Check its "
            "name and version, and the server's log if it should have been loaded"
        ) from wait.error
    raise wait.timeout()


def wait_and_fetch(model_name: str, model_version: str | None, timeout_s: float) -> Flow[TritonModelConfig]:
    """Wait for a model, then get its description, both within ``timeout_s``; raises as either."""
    deadline = Deadline(timeout_s)
    yield from wait_for_model(model_name, model_version, deadline)
    return (yield from fetch_model_config(model_name, model_version, deadline))


class _Wait:
    """Asks a server again and again, and logs what is waited for.

    Args:
        what: Is waited for.
        deadline: Of the wait.
        interval_s: Pause between two questions; None starts with a short one.

    Attributes:
        error: Why the last question was not answered; None if it was.
        no: What an answer that is no means, for the log.
    """

    def __init__(self, what: str, deadline: Deadline, interval_s: float | None = None) -> None:
        self._what = what
        self._deadline = deadline
        self._interval_s = interval_s or 0.0
        self._grows = interval_s is None
        self._next_report_s = _FIRST_REPORT_S
        self.error: PyTritonClientError | None = None
        self.no = "it is not ready"

    def ask(self, method: str, arguments: Mapping[str, str] | None = None) -> Flow[bool]:
        """Whether the server says yes."""
        # A server that does not answer is asked again soon at first, so that the log tells of it.
        timeout_s = min(NETWORK_TIMEOUT_S, max(_FIRST_REPORT_S, self._deadline.elapsed_s()))
        self.error = None
        try:
            return bool((yield self._deadline.call(method, arguments, timeout_s)))
        except PyTritonClientTlsError:
            raise  # a matter of files and settings, which waiting does not change
        except (PyTritonClientInferenceServerError, PyTritonClientTimeoutError) as error:
            if "is restricted" in error.message:
                raise PyTritonClientInferenceServerError(
                    f"{error.message}; give the client the server's access_token"
                ) from error
            # Refused, reset, unreachable: all of it happens while a server starts.
            self.error = error
        return False

    def pause(self, reserve_s: float = 0.0) -> Flow[None]:
        """Sleep until it is time for the next question; log, from time to time, that this still waits."""
        elapsed_s, left_s = self._deadline.elapsed_s(), self._deadline.left_s()
        if elapsed_s >= self._next_report_s and left_s:
            self._next_report_s = elapsed_s + _REPORT_S - (elapsed_s - self._next_report_s) % _REPORT_S
            limit = "" if math.isinf(left_s) else f", for up to {left_s:.0f} s more"
            reason = f"the last attempt failed with: {self.error}" if self.error else self.no
            LOGGER.warning("still waiting for %s after %.0f s%s: %s", self._what, elapsed_s, limit, reason)
        if self._grows:
            self._interval_s = min(self._interval_s + _POLL_STEP_S, _POLL_MAX_S)
        yield Sleep(min(self._interval_s, self._deadline.left_s(reserve_s)))

    def timeout(self) -> PyTritonClientTimeoutError:
        """The error for a deadline that has passed."""
        text = f"{self._what} was not ready within {self._deadline.timeout_s:g} s"
        reason = f"; the last attempt failed with: {self.error}" if self.error else ""
        timeout = PyTritonClientTimeoutError(text + reason)
        timeout.__cause__ = self.error
        return timeout


class _Absence:
    """Whether a server has no such model, rather than one that is not ready, and since when.

    Args:
        model_name: Its name.
        model_version: None is any.
        deadline: Of the wait.
    """

    def __init__(self, model_name: str, model_version: str | None, deadline: Deadline) -> None:
        self._name = model_name
        self._version = model_version
        self._deadline = deadline
        self._next_look_s = _LOOK_S
        self._since_s: float | None = None
        self._may_come = False

    def lasts(self, wait: _Wait) -> Flow[bool]:
        """Look for the model, after a question that was not answered with yes.

        Returns:
            Whether the server has not known the model for so long that waiting makes no sense.
        """
        if wait.error is not None:
            # A client that sees a server start has to expect that its models come later.
            self._may_come |= isinstance(wait.error, PyTritonClientConnectionError)
            self._since_s = None
            return False
        now_s = self._deadline.elapsed_s()
        if now_s < self._next_look_s:
            return False
        self._next_look_s = now_s + _LOOK_S
        is_unknown = yield from self._is_unknown()
        wait.no = "the server has no such model" if is_unknown else "it is not ready"
        if not is_unknown:
            self._since_s = None
            return False
        if self._since_s is None:
            self._since_s = now_s
        if self._may_come or now_s - self._since_s < _MISSING_S:
            return False
        index = yield from self._index()
        # A server without any model is still being set up.
        self._may_come = index is not None and (not index or is_listed(index, self._name, self._version))
        return not self._may_come

    def verdict(self) -> Flow[str]:
        """What the user may have meant, if the server neither has the model loaded nor loads it; else nothing."""
        index = yield from self._index()
        if index is None:
            # The index needs the access token of most servers, what _is_unknown() asks for does not.
            is_missing = yield from self._is_unknown()
            return "the server tells which models it has only with its access token" if is_missing else ""
        state = find_model_state(parse_http_response(index), self._name, self._version)
        return suggestion(index, self._name, self._version) if state is ModelState.UNAVAILABLE else ""

    def _is_unknown(self) -> Flow[bool]:
        """Whether a server that is ready has never heard of the model."""
        try:
            if (yield self._deadline.call("is_server_ready")):
                yield self._deadline.call("get_model_config", model_arguments(self._name, self._version))
            else:
                self._may_come = True  # it loads other models, so perhaps this one as well
        except PyTritonClientServerUnavailableError as error:
            return "is not found" in error.message  # else it was unloaded, or is being loaded
        except (PyTritonClientInferenceServerError, PyTritonClientTimeoutError):
            pass
        return False

    def _index(self) -> Flow[Sequence[Mapping[str, str]] | None]:
        """The server's repository index; None if it does not give it."""
        try:
            return (yield from repository_index(self._deadline))
        except (PyTritonClientInferenceServerError, PyTritonClientTimeoutError):
            return None
