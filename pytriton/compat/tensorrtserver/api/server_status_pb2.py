"""A server's status, and the states of servers and models by their names, such as ``MODEL_READY``."""

from pytriton.compat.tensorrtserver.messages import (
    ModelReadyState,
    ModelRepositoryIndex,
    ServerReadyState,
    ServerStatus,
    SharedMemoryStatus,
)

__all__ = ["ModelReadyState", "ModelRepositoryIndex", "ServerReadyState", "ServerStatus", "SharedMemoryStatus"]

globals().update(ServerReadyState.items())
globals().update(ModelReadyState.items())
