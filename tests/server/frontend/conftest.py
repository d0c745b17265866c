"""A server with each of the front ends, which serve the same models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pytriton.server.backends import LIBRARY
from pytriton.server.installation import HTTP_FRONTEND
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig
from tests.server.conftest import local_config
from tests.server.frontend.models import bind_models

IS_BUILT = LIBRARY.with_name(HTTP_FRONTEND).is_file()
OPTIONS = {"http_header_forward_pattern": "x-.*"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all tests of the native front end where it was not compiled."""
    if not IS_BUILT:
        for item in items:
            if "/frontend/" in str(item.path):
                item.add_marker(pytest.mark.skip(reason="the native HTTP front end was not compiled here"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, TritonConfig]]:
    """Configurations of two servers, ``native`` and ``triton``, after their front ends."""
    with ExitStack() as stack:
        configs = {}
        for name in ("native", "triton"):
            config = stack.enter_context(local_config(http_frontend=name, **OPTIONS))
            triton = stack.enter_context(
                Triton(config=config, security_config=TritonSecurityConfig(restricted_endpoints=[]))
            )
            bind_models(triton, tmp_path_factory.mktemp(name))
            triton.run()
            configs[name] = config
        yield configs


@pytest.fixture(scope="module")
def native(pair: dict[str, TritonConfig]) -> TritonConfig:
    """Configuration of the server with the native front end."""
    return pair["native"]
