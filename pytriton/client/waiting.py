"""Waiting for a server and its models, with log messages meanwhile, and the model's configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pytriton.client.conversations import NETWORK_TIMEOUT_S, Conversation, Deadline, Sleep
from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientModelUnavailableError,
    PyTritonClientServerUnavailableError,
    PyTritonClientTimeoutError,
    PyTritonClientTlsError,
    PyTritonClientUnreachableError,
)
from pytriton.client.repository_index import (
    ModelState,
    find_model_state,
    is_listed,
    parse_http_response,
    repository_index,
    suggestion,
)
from pytriton.exceptions import PyTritonModelConfigError
from pytriton.logs import get_logger
from pytriton.model_config.parser import ModelConfigParser
from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = [
    "LATEST_MODEL_VERSION",
    "fetch_model_config",
    "model_arguments",
    "wait_and_fetch",
    "wait_for_model",
    "wait_for_server",
]

LATEST_MODEL_VERSION = "<latest>"
"""Stands for the highest version in messages."""

LOGGER = get_logger("pytriton.client")

# A starting server is usually ready within some hundred milliseconds, so the first polls follow closely.
_POLL_STEP_S = 0.01
_POLL_MAX_S = 1.0

_FIRST_REPORT_S = 5.0
_REPORT_S = 10.0

# The first look for the model comes after half a second, and the error of an unknown model within 5 s.
_LOOK_S = 0.5
_MISSING_S = 3.5

_RETRY_S = 0.1


def fetch_model_config(
    model_name: str, model_version: str | None, deadline: Deadline
) -> Conversation[TritonModelConfig]:
    """Get the description of a model.

    Raises:
        PyTritonClientInferenceServerError: The server refused.
        PyTritonClientTimeoutError: There was no answer at the deadline.
        PyTritonModelConfigError: The description cannot be understood.
    """
    arguments = model_arguments(model_name, model_version)
    while True:  # the connection fails while a server restarts
        try:
            config = yield deadline.call("get_model_config", arguments)
            break
        except PyTritonClientTlsError:
            raise
        except PyTritonClientConnectionError:
            if not deadline.left_s(_RETRY_S):
                raise
        yield Sleep(_RETRY_S)
    try:
        return ModelConfigParser.from_dict(config)
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError) as error:
        raise PyTritonModelConfigError(
            f"the server's configuration of model {model_name!r} cannot be understood: {type(error).__name__} {error}"
        ) from error


def model_arguments(model_name: str, model_version: str | None) -> dict[str, str]:
    """The arguments of a call about a model."""
    return {"model_name": model_name, "model_version": model_version or ""}


def wait_for_server(deadline: Deadline, interval_s: float | None = None) -> Conversation[None]:
    """Wait until the server is live and ready.

    Args:
        interval_s: Pause between two attempts; None starts with a short one.

    Raises:
        PyTritonClientTimeoutError: It was not ready at the deadline.
        PyTritonClientInferenceServerError: The server demands an access token.
    """
    wait = _Wait("the server", deadline, interval_s)
    for method in ("is_server_live", "is_server_ready"):
        while not (yield from wait.ask(method)):
            yield from wait.pause()
            if not deadline.left_s():
                raise wait.timeout()


def wait_for_model(
    model_name: str,
    model_version: str | None,
    deadline: Deadline,
    *,
    fail_if_missing: bool = False,
    unreachable_s: float = math.inf,
) -> Conversation[None]:
    """Wait until a model can serve, which includes waiting for the server.

    The server need not be ready: it is not while other models load or are broken.

    Args:
        model_version: None is the highest.
        fail_if_missing: Give up when a server was ready for some seconds and did not know the model. Wait longer if the
            server was starting, has no models yet, or lists the model as not loaded.
        unreachable_s: Give up when no server could be reached for so long from the start, and at once where another
            program answers; infinite waits in both cases.

    Raises:
        PyTritonClientUnreachableError: No server could be reached within ``unreachable_s``, or another program answers.
        PyTritonClientModelUnavailableError: The server was reached, but had no such model or version.
        PyTritonClientTimeoutError: The model was not ready at the deadline.
        PyTritonClientInferenceServerError: The server demands an access token.
    """
    model = f"model {model_name!r} (version {model_version or LATEST_MODEL_VERSION})"
    arguments = model_arguments(model_name, model_version)
    wait = _Wait(model, deadline, unreachable_s=unreachable_s)
    absence = _Absence(model_name, model_version, deadline)
    # Reserve time before the deadline to find out why the model is not there.
    reserve_s = min(0.2 * deadline.timeout_s, 0.5)
    while deadline.left_s(reserve_s):
        if (yield from wait.ask("is_model_ready", arguments)):
            return
        wait.check_reached()
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


def wait_and_fetch(model_name: str, model_version: str | None, timeout_s: float) -> Conversation[TritonModelConfig]:
    """Wait for a model, then get its description, both within ``timeout_s``; raises as either."""
    deadline = Deadline(timeout_s)
    yield from wait_for_model(model_name, model_version, deadline)
    return (yield from fetch_model_config(model_name, model_version, deadline))


class _Wait:
    """Polls a server, and logs from time to time what the client waits for.

    Args:
        what: The server or model, for messages.
        interval_s: Pause between two attempts; None starts with a short one.
        unreachable_s: How long a server that was never reached is waited for.

    Attributes:
        error: Of the last attempt; None if the server answered.
        no: What the answer "no" means, for the log.
    """

    def __init__(
        self, what: str, deadline: Deadline, interval_s: float | None = None, unreachable_s: float = math.inf
    ) -> None:
        self._what = what
        self._deadline = deadline
        self._unreachable_s = unreachable_s
        self._interval_s = interval_s or 0.0
        self._grows = interval_s is None
        self._next_report_s = _FIRST_REPORT_S
        self._is_reached = False
        self.error: PyTritonClientError | None = None
        self.no = "it is not ready"

    def ask(self, method: str, arguments: Mapping[str, str] | None = None) -> Conversation[bool]:
        """Whether the server says yes."""
        # The first attempts are short, so that the log soon tells of a server that does not answer.
        timeout_s = min(NETWORK_TIMEOUT_S, max(_FIRST_REPORT_S, self._deadline.elapsed_s()))
        previous, self.error = self.error, None
        try:
            answer = bool((yield self._deadline.call(method, arguments, timeout_s)))
            self._is_reached = True
            return answer
        except PyTritonClientTlsError:
            raise  # waiting does not change certificates
        except (PyTritonClientInferenceServerError, PyTritonClientTimeoutError) as error:
            if "is restricted" in error.message:
                raise PyTritonClientInferenceServerError(
                    f"{error.message}; give the client the server's access_token"
                ) from error
            # Connections are refused and reset while a server starts. An attempt that the deadline cut short tells less
            # than the one before.
            self.error = error if self._deadline.left_s() or previous is None else previous
            self._is_reached = self._is_reached or not isinstance(error, PyTritonClientConnectionError)
        return False

    def check_reached(self) -> None:
        """Raise PyTritonClientUnreachableError if every attempt in the first ``unreachable_s`` has failed to connect.

        Where another program answers, the first one suffices, unless ``unreachable_s`` is infinite.
        """
        timeout_s = self._unreachable_s
        if self.error is None or self._is_reached or math.isinf(timeout_s):
            return
        is_other = isinstance(self.error, PyTritonClientConnectionError) and self.error.is_other_program
        if not is_other and self._deadline.elapsed_s() < timeout_s:
            return
        reason = "no Triton server answers" if is_other else f"no server was reached within {timeout_s:g} s"
        raise PyTritonClientUnreachableError(
            f"{reason}: {self.error}. Check the address, and that the server runs; to wait longer for a server that "
            "starts later, give the client init_timeout_s, or call wait_for_server() or wait_for_model() first"
        ) from None

    def pause(self, reserve_s: float = 0.0) -> Conversation[None]:
        """Sleep until the next attempt; from time to time, log that the client still waits."""
        elapsed_s, left_s = self._deadline.elapsed_s(), self._deadline.left_s()
        if elapsed_s >= self._next_report_s and left_s:
            self._next_report_s = elapsed_s + _REPORT_S - (elapsed_s - self._next_report_s) % _REPORT_S
            if not self._is_reached:
                left_s = min(left_s, self._unreachable_s - elapsed_s)
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
        # Of an attempt to connect, the message says all, and its own causes fill a screen.
        timeout.__cause__ = None if isinstance(self.error, PyTritonClientConnectionError) else self.error
        return timeout


class _Absence:
    """Finds out whether, and since when, a server has no such model, rather than one that is not ready.

    Args:
        model_version: None is any.
    """

    def __init__(self, model_name: str, model_version: str | None, deadline: Deadline) -> None:
        self._name = model_name
        self._version = model_version
        self._deadline = deadline
        self._next_look_s = _LOOK_S
        self._since_s: float | None = None
        self._may_come = False
        self._refusal = ""  # of the server, which may name the model that is nearest

    def lasts(self, wait: _Wait) -> Conversation[bool]:
        """Look for the model, after an attempt without success.

        Returns:
            Whether the server has not known the model for so long that the client should give up.
        """
        if wait.error is not None:
            # The models of a server that is starting come later.
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
        # A server without any model may still be starting.
        self._may_come = index is not None and (not index or is_listed(index, self._name, self._version))
        return not self._may_come

    def verdict(self) -> Conversation[str]:
        """Why the model is missing; empty if the server has it, or loads it."""
        index = yield from self._index()
        if index is None:
            # Most servers demand the access token for the index, but not for the calls of _is_unknown().
            is_missing = yield from self._is_unknown()
            return self._refusal if is_missing else ""
        state = find_model_state(parse_http_response(index), self._name, self._version)
        return suggestion(index, self._name, self._version) if state is ModelState.UNAVAILABLE else ""

    def _is_unknown(self) -> Conversation[bool]:
        """Whether a server is ready and does not know the model."""
        try:
            if (yield self._deadline.call("is_server_ready")):
                yield self._deadline.call("get_model_config", model_arguments(self._name, self._version))
            else:
                self._may_come = True  # it loads models, so perhaps this one
        except PyTritonClientServerUnavailableError as error:
            self._refusal = error.message
            return "is not found" in error.message  # else it was unloaded, or is loading
        except (PyTritonClientInferenceServerError, PyTritonClientTimeoutError):
            pass
        return False

    def _index(self) -> Conversation[Sequence[Mapping[str, str]] | None]:
        """The server's repository index; None if the server refuses it."""
        try:
            return (yield from repository_index(self._deadline))
        except (PyTritonClientInferenceServerError, PyTritonClientTimeoutError):
            return None
