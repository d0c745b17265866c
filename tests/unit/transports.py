"""Transports to small servers, and calls that are made through them."""

from __future__ import annotations

import contextlib

import pytest

from pytriton.client.aio import open_async_transport
from pytriton.client.auth import TritonUrl
from pytriton.client.conversations import Call
from pytriton.client.sync import open_transport

TOKEN = {"triton-access-token": "secret"}
LIVE = Call("is_server_live", 5.0)
CONFIG = Call("get_model_config", 5.0, {"model_name": "m", "model_version": ""})
INDEX = Call("get_model_repository_index", 5.0)
SCHEMES = pytest.mark.parametrize("scheme", ["http", "grpc"])


@contextlib.contextmanager
def transport_to(address, scheme="http", headers=TOKEN):
    transport = open_transport(TritonUrl.from_url(f"{scheme}://{address}"), headers)
    try:
        yield transport
    finally:
        transport.close()


def open_async_to(address, scheme="http", headers=TOKEN):
    return open_async_transport(TritonUrl.from_url(f"{scheme}://{address}"), headers)


@contextlib.asynccontextmanager
async def async_transport_to(address, scheme="http", headers=TOKEN):
    transport = open_async_to(address, scheme, headers)
    try:
        yield transport
    finally:
        await transport.close()
