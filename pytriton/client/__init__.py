"""Clients of models on a Triton server."""

from pytriton.client.aio import AsyncioModelClient
from pytriton.client.aio_decoupled import AsyncioDecoupledModelClient
from pytriton.client.decoupled import DecoupledModelClient
from pytriton.client.futures import FuturesModelClient
from pytriton.client.options import RequestOptions
from pytriton.client.sync import ModelClient
from pytriton.client.tls import Tls

__all__ = [
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "DecoupledModelClient",
    "FuturesModelClient",
    "ModelClient",
    "RequestOptions",
    "Tls",
]
