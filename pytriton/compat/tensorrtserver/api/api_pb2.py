"""Requests: ``InferRequestHeader``, whose flags are all that is left of it."""

from pytriton.compat.tensorrtserver.messages import InferRequestHeader

__all__ = ["InferRequestHeader"]
