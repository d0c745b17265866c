"""OpenTelemetry in a test: the tracer of the process is put away, and what is there at the end, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pytriton.proxy import telemetry


@contextmanager
def no_tracer() -> Iterator[None]:
    """The process has no tracer, and has none again afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(telemetry, "_tracer", None)
        yield
