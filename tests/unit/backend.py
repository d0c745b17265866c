"""Stands in for ``triton_python_backend_utils``, the module that the server's Python backend gives its models."""

from __future__ import annotations

import json
import sys
import threading
from types import ModuleType

NAME = "triton_python_backend_utils"
FINAL = 1
TIMEOUT_S = 30.0


class Tensor:
    def __init__(self, name, array):
        self._name, self._array = name, array

    def name(self):
        return self._name

    def as_numpy(self):
        return self._array


class TritonModelException(Exception):
    pass


class Logger:
    @staticmethod
    def log_warn(message):
        pass


class TritonError:
    INTERNAL, UNAVAILABLE, CANCELLED = "internal", "unavailable", "cancelled"
    INVALID_ARG, NOT_FOUND = "invalid argument", "not found"

    def __init__(self, message, code):
        self.message, self.code = message, code


class InferenceRequest:
    """A request with these inputs; ``outputs`` are the names of those that the client wants.

    Attributes:
        name, sequence, sequence_flags, timeout_us: What the client said beside parameters.
        sender: Takes its responses.
    """

    def __init__(self, inputs, outputs=("y", "z"), **parameters):
        self.name, self.sequence, self.sequence_flags, self.timeout_us = "", 0, 0, 0
        self._inputs = [Tensor(name, array) for name, array in inputs.items()]
        self._outputs = list(outputs)
        self._parameters = json.dumps(parameters)
        self.sender = ResponseSender()

    def inputs(self):
        return self._inputs

    def requested_output_names(self):
        return self._outputs

    def parameters(self):
        return self._parameters

    def request_id(self):
        return self.name

    def correlation_id(self):
        return self.sequence

    def flags(self):
        return self.sequence_flags

    def timeout(self):
        return self.timeout_us

    def is_cancelled(self):
        return self.sender.is_cancelled()

    def get_response_sender(self):
        return self.sender


class ResponseSender:
    """Takes the responses of one request, while it is open.

    Attributes:
        sent: The responses.
        cancelled: Set by a test when the client has gone.
        is_broken: Set by a test to have the server refuse all calls.
        is_open: Cleared by a test to keep whoever sends waiting, as a busy server does.
    """

    def __init__(self):
        self.sent = []
        self.cancelled = self.is_broken = False
        self.is_open = threading.Event()
        self.is_open.set()
        self._final = threading.Event()

    def is_cancelled(self):
        self._check()
        return self.cancelled

    def _check(self):
        if self.is_broken:
            raise TritonModelException("the server is not amused")

    def send(self, response=None, flags=0):
        self._check()
        assert not self._final.is_set(), "a response after the last one"
        assert self.is_open.wait(TIMEOUT_S)
        if response is not None:
            self.sent.append(response)
        if flags == FINAL:
            self._final.set()

    def is_final(self):
        return self._final.is_set()

    def all(self):
        """The responses, once the last one has come."""
        assert self._final.wait(TIMEOUT_S), "no last response"
        return self.sent


class InferenceResponse:
    """What a model answers; ``outputs`` is a dict of copies, as the server copies them when ``execute`` returns."""

    def __init__(self, output_tensors=(), error=None):
        self.outputs = {tensor.name(): tensor.as_numpy().copy() for tensor in output_tensors}
        self.error = error

    def has_error(self):
        return self.error is not None


def install(patch):
    """Let the module be imported while the patch, a ``pytest.MonkeyPatch``, lasts."""
    module = ModuleType(NAME)
    module.TRITONSERVER_RESPONSE_COMPLETE_FINAL = FINAL
    for kind in (Tensor, TritonError, TritonModelException, Logger, InferenceRequest, InferenceResponse):
        setattr(module, kind.__name__, kind)
    patch.setitem(sys.modules, NAME, module)
