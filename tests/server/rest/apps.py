"""A server with an app of one test's own, in this process or in a host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pytriton.config import TritonConfig
from pytriton.rest import RestConfig
from pytriton.triton import Triton
from tests.server.conftest import local_config
from tests.server.ports import reserved_ports
from tests.server.processes import command_line, descendants, is_alive


def shout(text: str) -> str:
    return text.upper()


@contextmanager
def app_config(**options: Any) -> Iterator[RestConfig]:
    """Options with a free port of this machine alone."""
    with reserved_ports(1) as (port,):
        yield RestConfig(port=port, address="127.0.0.1", **options)


@contextmanager
def with_app(function: Any = shout, config: TritonConfig | None = None, **options: Any) -> Iterator[Triton]:
    """A server of one function, with an app of these options."""
    with app_config(**options) as rest, local_config() as free, Triton(config=config or free, rest=rest) as triton:
        triton.bind(function)
        triton.run()
        yield triton


def url_of(rest: RestConfig, path: str = "") -> str:
    scheme = "http" if rest.certificate is None else "https"
    return f"{scheme}://{rest.address}:{rest.port}{path}"


def app_processes(rest: RestConfig, pid: int | None = None) -> list[int]:
    """Process ids of an app that a process runs; by default this one."""
    return [
        each
        for each in descendants(pid or os.getpid())
        if f"pytriton-rest:{rest.port}" in command_line(each) and is_alive(each)
    ]
