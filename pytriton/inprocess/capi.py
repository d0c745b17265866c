"""The functions of the server's C API that are called here, through ctypes.

ctypes and not cffi: per call cffi is some tenths of a microsecond faster, as much as a request's other costs vary by,
and would be one more dependency whose declarations are parsed at each start.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from ctypes import (
    byref,
    c_bool,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any

from pytriton.inprocess.exceptions import TritonError, error_of

__all__ = ["API_VERSION", "Api"]

API_VERSION = (1, 34)
PREFIX = "TRITONSERVER_"

TYPES = {
    "p": c_void_p,  # an object, a buffer, or where a result goes
    "s": c_char_p,
    "b": c_bool,
    "i": c_int,
    "u": c_uint,
    "l": c_int64,
    "q": c_uint64,
    "z": c_size_t,
    "d": c_double,
    "": None,
}

# Arguments of each function that returns an error or NULL.
CHECKED = {
    "ApiVersion": "pp",
    "MessageSerializeToJson": "ppp",
    "MessageDelete": "p",
    "MetricsFormatted": "pipp",
    "MetricsDelete": "p",
    "ServerOptionsNew": "p",
    "ServerOptionsDelete": "p",
    "ServerOptionsAddRateLimiterResource": "pszi",
    "ServerOptionsSetBackendConfig": "psss",
    "ServerOptionsSetBackendDirectory": "ps",
    "ServerOptionsSetBufferManagerThreadCount": "pu",
    "ServerOptionsSetCacheConfig": "pss",
    "ServerOptionsSetCacheDirectory": "ps",
    "ServerOptionsSetCpuMetrics": "pb",
    "ServerOptionsSetCudaMemoryPoolByteSize": "piq",
    "ServerOptionsSetEnablePeerAccess": "pb",
    "ServerOptionsSetExitOnError": "pb",
    "ServerOptionsSetExitTimeout": "pu",
    "ServerOptionsSetGpuMetrics": "pb",
    "ServerOptionsSetHostPolicy": "psss",
    "ServerOptionsSetLogError": "pb",
    "ServerOptionsSetLogFile": "ps",
    "ServerOptionsSetLogFormat": "pi",
    "ServerOptionsSetLogInfo": "pb",
    "ServerOptionsSetLogVerbose": "pi",
    "ServerOptionsSetLogWarn": "pb",
    "ServerOptionsSetMetrics": "pb",
    "ServerOptionsSetMetricsConfig": "psss",
    "ServerOptionsSetMetricsInterval": "pq",
    "ServerOptionsSetMinSupportedComputeCapability": "pd",
    "ServerOptionsSetModelControlMode": "pi",
    "ServerOptionsSetModelLoadDeviceLimit": "piid",
    "ServerOptionsSetModelLoadRetryCount": "pu",
    "ServerOptionsSetModelLoadThreadCount": "pu",
    "ServerOptionsSetModelNamespacing": "pb",
    "ServerOptionsSetModelRepositoryPath": "ps",
    "ServerOptionsSetPinnedMemoryPoolByteSize": "pq",
    "ServerOptionsSetRateLimiterMode": "pi",
    "ServerOptionsSetRepoAgentDirectory": "ps",
    "ServerOptionsSetServerId": "ps",
    "ServerOptionsSetStartupModel": "ps",
    "ServerOptionsSetStrictModelConfig": "pb",
    "ServerOptionsSetStrictReadiness": "pb",
    "ServerNew": "pp",
    "ServerDelete": "p",
    "ServerStop": "p",
    "ServerIsLive": "pp",
    "ServerIsReady": "pp",
    "ServerMetadata": "pp",
    "ServerMetrics": "pp",
    "ServerModelIsReady": "pslp",
    "ServerModelBatchProperties": "pslpp",
    "ServerModelTransactionProperties": "pslpp",
    "ServerModelMetadata": "pslp",
    "ServerModelStatistics": "pslp",
    "ServerModelConfig": "pslup",
    "ServerModelIndex": "pup",
    "ServerLoadModel": "ps",
    "ServerLoadModelWithParameters": "pspq",
    "ServerUnloadModel": "ps",
    "ServerUnloadModelAndDependents": "ps",
    "ServerRegisterModelRepository": "pspu",
    "ServerUnregisterModelRepository": "ps",
    "ServerPollModelRepository": "p",
    "InferenceRequestSetFlags": "pu",
    "InferenceRequestSetCorrelationId": "pq",
    "InferenceRequestSetCorrelationIdString": "ps",
    "InferenceRequestSetPriorityUInt64": "pq",
    "InferenceRequestSetTimeoutMicroseconds": "pq",
    "InferenceRequestSetStringParameter": "pss",
    "InferenceRequestSetIntParameter": "psl",
    "InferenceRequestSetBoolParameter": "psb",
    "InferenceRequestSetDoubleParameter": "psd",
    "MetricFamilyNew": "piss",
    "MetricFamilyDelete": "p",
    "MetricNew": "pppq",
    "MetricDelete": "p",
    "MetricValue": "pp",
    "MetricIncrement": "pd",
    "MetricSet": "pd",
}
# Arguments and result of the others.
PLAIN = {
    "ErrorNew": ("is", "p"),
    "ErrorDelete": ("p", ""),
    "ErrorCode": ("p", "i"),
    "ErrorMessage": ("p", "s"),
    "ParameterNew": ("sip", "p"),
    "ParameterBytesNew": ("spq", "p"),
    "ParameterDelete": ("p", ""),
}
# Functions that neither wait nor take a lock that somebody else may hold while waiting for Python: they are called
# without giving up the interpreter lock, which takes half the time.
QUICK = {
    *PLAIN,
    "ApiVersion",
    "MessageSerializeToJson",
    "MetricsFormatted",
    *(name for name in CHECKED if name.startswith("InferenceRequestSet")),
}

Function = Callable[..., Any]


class Api:
    """The functions of a loaded server library, as attributes without their prefix.

    Those that can fail raise the error's TritonError. All but the quickest let other Python threads run meanwhile.

    Args:
        library: Its file, which is loaded already, and so are its companions.

    Attributes:
        handle: What ``dlopen`` gave for it.
    """

    def __init__(self, library: Path) -> None:
        self._waiting = ctypes.CDLL(str(library))
        self._quick = ctypes.PyDLL(str(library))
        self.handle = self._waiting._handle

    def __getattr__(self, name: str) -> Function:
        if name not in CHECKED and name not in PLAIN:
            raise AttributeError(name)
        function = getattr(self._quick if name in QUICK else self._waiting, PREFIX + name)
        arguments, result = PLAIN.get(name) or (CHECKED[name], "p")
        function.argtypes = [TYPES[letter] for letter in arguments]
        function.restype = TYPES[result]
        if name in CHECKED:
            function.errcheck = self._check
        setattr(self, name, function)  # not looked up again
        return function  # type: ignore[no-any-return]

    def _check(self, error: int | None, function: Any, arguments: Any) -> None:
        if error:
            self.raise_error(error)

    def raise_error(self, error: int) -> None:
        """Raise a C error as the exception for its code, and delete it."""
        try:
            raise self.error(error)
        finally:
            self.ErrorDelete(error)

    def error(self, error: int) -> TritonError:
        """The exception for a C error, which stays as it is."""
        return error_of(self.ErrorCode(error), self.ErrorMessage(error).decode(errors="replace"))

    def version(self) -> tuple[int, int]:
        """Major and minor version of the C API."""
        major, minor = c_uint32(), c_uint32()
        self.ApiVersion(byref(major), byref(minor))
        return major.value, minor.value

    def document(self, function: str, *arguments: Any) -> Any:
        """What a function says in JSON; its last argument, where the message goes, is added here."""
        message, text, size = c_void_p(), c_void_p(), c_size_t()
        getattr(self, function)(*arguments, byref(message))
        try:
            self.MessageSerializeToJson(message, byref(text), byref(size))
            return json.loads(ctypes.string_at(text.value or 0, size.value))
        finally:
            self.MessageDelete(message)
