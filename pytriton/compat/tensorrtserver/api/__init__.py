"""The names of ``tensorrtserver.api``.

Contexts take ``headers`` in addition to v1's arguments, because gRPC needs them for access tokens.
"""

from pytriton.compat.tensorrtserver.api import api_pb2, model_config_pb2, server_status_pb2
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException
from pytriton.compat.tensorrtserver.health import ServerHealthContext
from pytriton.compat.tensorrtserver.infer_context import InferContext
from pytriton.compat.tensorrtserver.messages import (
    InferRequestHeader,
    ModelRepositoryIndex,
    ServerStatus,
    SharedMemoryStatus,
)
from pytriton.compat.tensorrtserver.model_control import ModelControlContext
from pytriton.compat.tensorrtserver.model_repository import ModelRepositoryContext
from pytriton.compat.tensorrtserver.protocol import ProtocolType
from pytriton.compat.tensorrtserver.server_status import ServerStatusContext
from pytriton.compat.tensorrtserver.shared_memory_control import SharedMemoryControlContext
from pytriton.compat.tensorrtserver.strings import serialize_string_tensor

__all__ = [
    "InferContext",
    "InferRequestHeader",
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
    "serialize_string_tensor",
    "server_status_pb2",
]
