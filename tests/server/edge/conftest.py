"""A server with the edge and one with Triton's own endpoint, which serve the same models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pytriton.server.backends import LIBRARY
from pytriton.server.installation import EDGE
from pytriton.triton import TritonConfig
from tests.server.edge.models import server_of_models
from tests.server.edge.wire import Client, connected
from tests.server.own_server import server_of

IS_BUILT = LIBRARY.with_name(EDGE).is_file()
OPTIONS = {"http_header_forward_pattern": "x-.*"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all tests of the edge where it was not compiled."""
    if not IS_BUILT:
        for item in items:
            if "/edge/" in str(item.path):
                item.add_marker(pytest.mark.skip(reason="the edge was not compiled here"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, TritonConfig]]:
    """Configurations of two servers, ``native`` and ``triton``, after who serves their HTTP."""
    with ExitStack() as stack:
        configs = {}
        for name in ("native", "triton"):
            served = server_of_models(tmp_path_factory.mktemp(name), http_frontend=name, **OPTIONS)
            configs[name] = stack.enter_context(served)
        yield configs


@pytest.fixture(scope="module")
def native(pair: dict[str, TritonConfig]) -> TritonConfig:
    """Configuration of the server with the edge."""
    return pair["native"]


@pytest.fixture
def client(config: TritonConfig) -> Iterator[Client]:
    """A connection to the server of the module, which has to be the same process afterwards."""
    pid = server_of(config)
    with connected(config) as client:
        yield client
    assert server_of(config) == pid
