"""A server's status, and the states of servers and models by their names, such as ``MODEL_READY``."""

from pytriton.compat.tensorrtserver.messages import (
    HealthRequestStats,
    InferRequestStats,
    ModelControlRequestStats,
    ModelReadyState,
    ModelReadyStateReason,
    ModelRepositoryIndex,
    ModelStatus,
    ModelVersionStatus,
    RepositoryRequestStats,
    ServerReadyState,
    ServerStatus,
    SharedMemoryControlRequestStats,
    SharedMemoryRegion,
    SharedMemoryStatus,
    StatDuration,
    StatusRequestStats,
    TraceControlRequestStats,
)

__all__ = [
    "HealthRequestStats",
    "InferRequestStats",
    "ModelControlRequestStats",
    "ModelReadyState",
    "ModelReadyStateReason",
    "ModelRepositoryIndex",
    "ModelStatus",
    "ModelVersionStatus",
    "RepositoryRequestStats",
    "ServerReadyState",
    "ServerStatus",
    "SharedMemoryControlRequestStats",
    "SharedMemoryRegion",
    "SharedMemoryStatus",
    "StatDuration",
    "StatusRequestStats",
    "TraceControlRequestStats",
]

globals().update(ServerReadyState.items())
globals().update(ModelReadyState.items())
