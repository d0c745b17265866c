"""A server with models for OpenAI's routes, shared by the tests of a module, and clients of the openai package."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from pytriton.rest import RestConfig
from pytriton.triton import Triton
from tests.server.conftest import LOCALHOST, local_config
from tests.server.openai.models import bind_models
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S

MOST_BYTES = 2**20


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with reserved_ports(1) as (port,):
        yield port


@pytest.fixture(scope="module")
def triton(port: int) -> Iterator[Triton]:
    """A server whose app listens at ``port``."""
    rest = RestConfig(port=port, address=LOCALHOST, max_body_bytes=MOST_BYTES, heartbeat_s=0.2)
    with local_config() as config, Triton(config=config, rest=rest) as triton:
        bind_models(triton)
        yield triton


@pytest.fixture(scope="module")
def url(triton: Triton, port: int) -> str:
    return f"http://{LOCALHOST}:{port}"


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=DEADLINE_S) as client:
        yield client
