"""The names of ``tensorrtserver.api``, of TensorRT Inference Server 1.8 to 1.15.

``from ... import *`` also gives what leaked through the old module, because programs rely on it: ``os``, ``sys``,
``struct``, ``threading``, ``queue``, ``np``, ``partial``, ``IntEnum``, ``range``, ``zip``, ``iteritems`` as of
``future.utils``, and all of ``ctypes``.

Contexts take ``headers`` in addition to v1's arguments, because gRPC needs them for more than access tokens.
"""

import ctypes
import os
import queue
import struct
import sys
import threading
from builtins import range, zip  # noqa: UP029  (old programs name them)
from collections.abc import Iterator, Mapping
from ctypes import *  # noqa: F403  (for programs)
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np

from pytriton.compat.tensorrtserver.api import api_pb2, model_config_pb2, request_status_pb2, server_status_pb2
from pytriton.compat.tensorrtserver.connection import ProtocolType
from pytriton.compat.tensorrtserver.contexts import (
    ModelControlContext,
    ModelRepositoryContext,
    ServerHealthContext,
    SharedMemoryControlContext,
)
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException
from pytriton.compat.tensorrtserver.infer_context import InferContext
from pytriton.compat.tensorrtserver.messages import (
    InferRequestHeader,
    InferResponseHeader,
    ModelRepositoryIndex,
    ServerStatus,
    SharedMemoryStatus,
)
from pytriton.compat.tensorrtserver.shared_memory import serialize_string_tensor
from pytriton.compat.tensorrtserver.status_context import ServerStatusContext

__all__ = [
    "InferContext",
    "InferRequestHeader",
    "InferResponseHeader",
    "InferenceServerException",
    "ModelControlContext",
    "ModelRepositoryContext",
    "ModelRepositoryIndex",
    "ProtocolType",
    "ServerHealthContext",
    "ServerStatus",
    "ServerStatusContext",
    "SharedMemoryControlContext",
    "SharedMemoryStatus",
    "api_pb2",
    "model_config_pb2",
    "request_status_pb2",
    "serialize_string_tensor",
    "server_status_pb2",
    # What leaked.
    "IntEnum",
    "iteritems",
    "np",
    "os",
    "partial",
    "queue",
    "range",
    "struct",
    "sys",
    "threading",
    "zip",
    *(name for name in vars(ctypes) if not name.startswith("_")),
]


def iteritems(mapping: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """The items of a dict, as of ``future.utils``."""
    return iter(mapping.items())
