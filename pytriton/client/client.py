"""The clients under their historical import path."""

from pytriton.client.aio import AsyncioDecoupledModelClient, AsyncioModelClient
from pytriton.client.futures import FuturesModelClient
from pytriton.client.session import DEFAULT_INFERENCE_TIMEOUT_S, BaseModelClient
from pytriton.client.sync import DecoupledModelClient, ModelClient

__all__ = [
    "DEFAULT_INFERENCE_TIMEOUT_S",
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "BaseModelClient",
    "DecoupledModelClient",
    "FuturesModelClient",
    "ModelClient",
]
