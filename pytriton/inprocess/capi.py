"""The server as a library of this process: found, loaded once, and its C API: enumerations, and functions by ctypes.

ctypes and not cffi: per call, cffi is some tenths of a microsecond faster, which is less than the variation of a
request, and would be one more dependency whose declarations are parsed at each start.

Other libraries of the process see none of the server's functions. The server's companion libraries export what others
do, for example OpenSSL: if they were loaded globally, as usual for a server whose backends look for its functions,
Python's own ``ssl`` would call the server's copy. So each companion is loaded by its full path before the library that
needs it; the loader then finds it by its name. Backends find the server's functions because they are linked with the
server: Triton's own are, and ours is linked to it by ``libpytriton_inprocess.so``, which needs both.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable
from ctypes import byref, c_size_t, c_uint32, c_void_p
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any

from pytriton.exceptions import PyTritonServerError
from pytriton.inprocess.exceptions import UnavailableError, UnsupportedError, error_of
from pytriton.server.backends import LIBRARY, build_mismatch
from pytriton.server.installation import BUNDLED, Installation, find_installation

__all__ = [
    "REQUESTS_LIBRARY",
    "Api",
    "DLDeviceType",
    "DataType",
    "InstanceGroupKind",
    "LogFormat",
    "MemoryType",
    "MetricFormat",
    "MetricKind",
    "ModelBatchFlag",
    "ModelControlMode",
    "ModelTxnPropertyFlag",
    "RateLimitMode",
    "installation",
    "load",
]

REQUESTS_LIBRARY = LIBRARY.with_name("libpytriton_requests.so")
LINK_LIBRARY = LIBRARY.with_name("libpytriton_inprocess.so")
API_VERSION = (1, 34)
PREFIX = "TRITONSERVER_"
_lock = threading.Lock()
_api: Api | None = None
_kept: list[ctypes.CDLL] = []  # companions and backends, which stay loaded


class MemoryType(IntEnum):
    """Type of a buffer's memory."""

    CPU = 0
    CPU_PINNED = 1
    GPU = 2


class DataType(IntEnum):
    """Type of a tensor's elements; BYTES are strings of any length."""

    INVALID = 0
    BOOL = 1
    UINT8 = 2
    UINT16 = 3
    UINT32 = 4
    UINT64 = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FP16 = 10
    FP32 = 11
    FP64 = 12
    BYTES = 13
    BF16 = 14


class ModelControlMode(IntEnum):
    """What decides which models are loaded: all at the start, changes in the repository, or ``load`` and ``unload``."""

    NONE = 0
    POLL = 1
    EXPLICIT = 2


class RateLimitMode(IntEnum):
    """Whether instances of models wait for resources, by priority, before they execute."""

    OFF = 0
    EXEC_COUNT = 1


class LogFormat(IntEnum):
    """Format of the begin of a line in the server's log."""

    DEFAULT = 0
    ISO8601 = 1


class MetricFormat(IntEnum):
    """Format of the text of metrics."""

    PROMETHEUS = 0


class ModelBatchFlag(IntFlag):
    """Whether the first axis of a model's tensors is the batch."""

    UNKNOWN = 1
    FIRST_DIM = 2


class ModelTxnPropertyFlag(IntFlag):
    """Number of responses to a request: exactly one, or any number."""

    ONE_TO_ONE = 1
    DECOUPLED = 2


class InstanceGroupKind(IntEnum):
    """Kind of device that the instances of a model use."""

    AUTO = 0
    CPU = 1
    GPU = 2
    MODEL = 3


class MetricKind(IntEnum):
    """Whether a metric's value can only grow, or can be set."""

    COUNTER = 0
    GAUGE = 1


class DLDeviceType(IntEnum):
    """Type of a buffer's memory in DLPack."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3


TYPES = {
    "p": c_void_p,  # an object, a buffer, or the address of a result
    "s": ctypes.c_char_p,
    "b": ctypes.c_bool,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "l": ctypes.c_int64,
    "q": ctypes.c_uint64,
    "z": c_size_t,
    "d": ctypes.c_double,
    "": None,
}

# Functions that return an error or NULL, after the types of their arguments.
_CHECKED = """
    p     MessageDelete MetricsDelete ServerOptionsNew ServerOptionsDelete ServerDelete ServerStop
    p     ServerPollModelRepository MetricFamilyDelete MetricDelete
    pb    ServerOptionsSetCpuMetrics ServerOptionsSetEnablePeerAccess ServerOptionsSetExitOnError
    pb    ServerOptionsSetGpuMetrics ServerOptionsSetLogError ServerOptionsSetLogInfo ServerOptionsSetLogWarn
    pb    ServerOptionsSetMetrics ServerOptionsSetModelNamespacing ServerOptionsSetStrictModelConfig
    pb    ServerOptionsSetStrictReadiness
    pd    ServerOptionsSetMinSupportedComputeCapability MetricIncrement MetricSet
    pi    ServerOptionsSetLogFormat ServerOptionsSetLogVerbose ServerOptionsSetModelControlMode
    pi    ServerOptionsSetRateLimiterMode
    piid  ServerOptionsSetModelLoadDeviceLimit
    pipp  MetricsFormatted
    piq   ServerOptionsSetCudaMemoryPoolByteSize
    piss  MetricFamilyNew
    pp    ApiVersion ServerNew ServerIsLive ServerIsReady ServerMetadata ServerMetrics MetricValue
    ppp   MessageSerializeToJson
    pppq  MetricNew
    pq    ServerOptionsSetMetricsInterval ServerOptionsSetPinnedMemoryPoolByteSize
    pq    InferenceRequestSetCorrelationId InferenceRequestSetPriorityUInt64
    pq    InferenceRequestSetTimeoutMicroseconds
    ps    ServerOptionsSetBackendDirectory ServerOptionsSetCacheDirectory ServerOptionsSetLogFile
    ps    ServerOptionsSetModelRepositoryPath ServerOptionsSetRepoAgentDirectory ServerOptionsSetServerId
    ps    ServerOptionsSetStartupModel ServerUnloadModel ServerUnloadModelAndDependents
    ps    ServerUnregisterModelRepository InferenceRequestSetCorrelationIdString
    psb   InferenceRequestSetBoolParameter
    psd   InferenceRequestSetDoubleParameter
    psl   InferenceRequestSetIntParameter
    pslp  ServerModelIsReady ServerModelMetadata ServerModelStatistics
    pslpp ServerModelBatchProperties ServerModelTransactionProperties
    pslup ServerModelConfig
    pspq  ServerLoadModelWithParameters
    pspu  ServerRegisterModelRepository
    pss   ServerOptionsSetCacheConfig InferenceRequestSetStringParameter
    psss  ServerOptionsSetBackendConfig ServerOptionsSetHostPolicy ServerOptionsSetMetricsConfig
    pszi  ServerOptionsAddRateLimiterResource
    pu    ServerOptionsSetBufferManagerThreadCount ServerOptionsSetExitTimeout ServerOptionsSetModelLoadRetryCount
    pu    ServerOptionsSetModelLoadThreadCount InferenceRequestSetFlags
    pup   ServerModelIndex
"""
CHECKED = {name: types for types, *names in map(str.split, _CHECKED.strip().splitlines()) for name in names}
# Arguments and result of the others.
UNCHECKED = {
    "ErrorNew": ("is", "p"),
    "ErrorDelete": ("p", ""),
    "ErrorCode": ("p", "i"),
    "ErrorMessage": ("p", "s"),
    "ParameterNew": ("sip", "p"),
    "ParameterBytesNew": ("spq", "p"),
    "ParameterDelete": ("p", ""),
}
# Functions that neither wait, nor lock what another thread may hold while it waits for Python. They are called without
# releasing the interpreter lock, which takes half the time.
QUICK = {
    *UNCHECKED,
    "ApiVersion",
    "MessageSerializeToJson",
    "MetricsFormatted",
    *(name for name in CHECKED if name.startswith("InferenceRequestSet")),
}


class Api:
    """The functions of a loaded server library, as attributes without their prefix.

    Functions that can fail raise the TritonError of the error's code. All but QUICK ones let other Python threads run.

    Args:
        library: Its file. It and its companions are loaded already.

    Attributes:
        handle: The library's handle, from ``dlopen``.
    """

    def __init__(self, library: Path) -> None:
        self._waiting = ctypes.CDLL(str(library))
        self._quick = ctypes.PyDLL(str(library))
        self.handle = self._waiting._handle

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in CHECKED and name not in UNCHECKED:
            raise AttributeError(name)
        function = getattr(self._quick if name in QUICK else self._waiting, PREFIX + name)
        arguments, result = UNCHECKED.get(name) or (CHECKED[name], "p")
        function.argtypes = [TYPES[letter] for letter in arguments]
        function.restype = TYPES[result]
        if name in CHECKED:
            function.errcheck = self._check
        setattr(self, name, function)  # the next access does not come here
        return function  # type: ignore[no-any-return]

    def _check(self, error: int | None, function: Any, arguments: Any) -> None:
        if error:
            self.raise_error(error)

    def raise_error(self, error: int) -> None:
        """Delete a C error, and raise the exception for its code."""
        try:
            raise error_of(self.ErrorCode(error), self.ErrorMessage(error).decode(errors="replace"))
        finally:
            self.ErrorDelete(error)

    def version(self) -> tuple[int, int]:
        """Major and minor version of the C API."""
        major, minor = c_uint32(), c_uint32()
        self.ApiVersion(byref(major), byref(minor))
        return major.value, minor.value

    def document(self, function: str, *arguments: Any) -> Any:
        """The JSON message that a function returns through its last argument, which is added here."""
        message, text, size = c_void_p(), c_void_p(), c_size_t()
        getattr(self, function)(*arguments, byref(message))
        try:
            self.MessageSerializeToJson(message, byref(text), byref(size))
            return json.loads(ctypes.string_at(text.value or 0, size.value))
        finally:
            self.MessageDelete(message)


def installation() -> Installation:
    """The server's files.

    Raises:
        UnavailableError: There are none; the message says how to get them.
    """
    try:
        return find_installation()
    except PyTritonServerError as error:
        raise UnavailableError(str(error)) from error


def load() -> Api:
    """The server's functions. The first call loads the library; it stays loaded until the process ends.

    Raises:
        UnavailableError: There is no server library, or it cannot be loaded.
        UnsupportedError: Its version is not supported, or our own libraries are of another build.
    """
    global _api
    with _lock:
        if _api is None:
            _api = _load(installation())
        return _api


def _load(installation: Installation) -> Api:
    for library in (LIBRARY, REQUESTS_LIBRARY):
        if library.is_file() and (reason := build_mismatch(library)):
            raise UnsupportedError(reason)
    folder = installation.home / "lib"
    server = next(iter(sorted(folder.glob("libtritonserver*.so"))), None)
    if server is None:
        raise UnavailableError(f"{folder} holds no libtritonserver.so; reinstall pytriton's wheel for this platform")
    try:
        _open(server, folder)
        if installation.home == BUNDLED and LINK_LIBRARY.is_file():
            _kept.append(_open(LINK_LIBRARY, folder))
        if (python := installation.home / "backends" / "python" / "libtriton_python.so").is_file():
            _kept.append(_open(python, folder))  # the server would not find its companions
    except OSError as error:
        raise UnavailableError(f"the server cannot be loaded into this process: {error}") from error
    api = Api(server)
    found = api.version()
    if found[0] != API_VERSION[0] or found < API_VERSION:
        have, need = (".".join(map(str, version)) for version in (found, API_VERSION))
        raise UnsupportedError(f"{server} has version {have} of the C API; {need} or a later {need[0]}.x is needed")
    return api


def _open(library: Path, folder: Path) -> ctypes.CDLL:
    """Load a library, after each library of ``folder`` that the loader does not find."""
    tried = {library}
    while True:
        try:
            return ctypes.CDLL(str(library))
        except OSError as error:
            missing = str(error).partition(":")[0]  # the rest is in the language of the locale
            companion = folder / missing
            if "/" in missing or companion in tried or not companion.is_file():
                raise
            tried.add(companion)
            _kept.append(_open(companion, folder))
