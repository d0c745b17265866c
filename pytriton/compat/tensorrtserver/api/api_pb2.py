"""Headers of requests and responses, of which only the flags of ``InferRequestHeader`` are still needed."""

from pytriton.compat.tensorrtserver.messages import InferRequestHeader, InferResponseHeader, InferSharedMemory

__all__ = ["InferRequestHeader", "InferResponseHeader", "InferSharedMemory"]
