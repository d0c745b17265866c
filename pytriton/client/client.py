"""The clients under their historical import path."""

from pytriton.client.aio import AsyncioModelClient
from pytriton.client.aio_decoupled import AsyncioDecoupledModelClient
from pytriton.client.base import BaseModelClient
from pytriton.client.decoupled import DecoupledModelClient
from pytriton.client.futures import FuturesModelClient
from pytriton.client.session import DEFAULT_INFERENCE_TIMEOUT_S
from pytriton.client.sync import ModelClient

__all__ = [
    "DEFAULT_INFERENCE_TIMEOUT_S",
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "BaseModelClient",
    "DecoupledModelClient",
    "FuturesModelClient",
    "ModelClient",
]
