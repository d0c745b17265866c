"""Clients of models on a Triton server."""

from pytriton.client.aio import AsyncioDecoupledModelClient, AsyncioModelClient
from pytriton.client.arguments import RequestOptions
from pytriton.client.auth import Tls
from pytriton.client.futures import FuturesModelClient
from pytriton.client.sync import DecoupledModelClient, ModelClient

__all__ = [
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "DecoupledModelClient",
    "FuturesModelClient",
    "ModelClient",
    "RequestOptions",
    "Tls",
]
