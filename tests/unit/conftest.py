"""Fixtures shared by the unit tests."""

from __future__ import annotations

import gc
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import prometheus_client
import pytest
from hypothesis import HealthCheck, settings
from tritonclient.grpc import service_pb2

from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.server.backends import VERSION
from pytriton.worker.context import Binding, TritonContext, attach, current_binding
from tests.server.processes import wait_for
from tests.unit.batches import DECOUPLED
from tests.unit.installations import make_home
from tests.unit.links import Link, imported_proxy
from tests.unit.loopback import Inference, ModelServer, Web, closed_address, serving, serving_grpc
from tests.unit.turnstile import Turnstile

# How long an example takes says more about the machine's other work than about ours.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

Bind = Callable[..., TritonModelConfig]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a server with a stub for this interpreter."""
    return make_home(tmp_path / "server home", VERSION)


@pytest.fixture
def libpython(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interpreter whose shared library lies in a folder of its own."""
    folder = tmp_path / "interpreter"
    folder.mkdir()
    (folder / f"libpython{VERSION}.so.1.0").touch()
    known = {"LIBDIR": str(folder), "MULTIARCH": None, "Py_GIL_DISABLED": 0}
    monkeypatch.setattr(sysconfig, "get_config_var", known.__getitem__)
    return folder / f"libpython{VERSION}.so.1.0"


@pytest.fixture
def bind() -> Iterator[Bind]:
    """``bind(callable, inputs, outputs, **options)``: serve the callable in this thread until the test ends.

    Inputs and outputs are dicts from name to ``(shape, dtype)``; options are those of TritonModelConfig.
    """
    token = current_binding.set(None)

    def bound(target: Any, inputs: Any = None, outputs: Any = None, **options: Any) -> TritonModelConfig:
        config = TritonModelConfig(**{
            "model_name": "model",
            "inputs": _specs(inputs or {"x": ((-1,), np.float32)}),
            "outputs": _specs(outputs or {"y": ((-1,), np.float32)}),
            **options,
        })  # fmt: skip
        context = TritonContext()
        attach(target, context, config)
        current_binding.set(Binding(target, config, context))
        return config

    yield bound
    current_binding.reset(token)


@pytest.fixture(scope="module")
def proxy_model() -> Iterator[Any]:
    """The proxy's module ``model``, as in the server's stub."""
    with imported_proxy() as module:
        yield module


def _threads() -> set[threading.Thread]:
    """The threads that run, without that of pyzmq's garbage collector, which stays."""
    return {thread for thread in threading.enumerate() if type(thread).__name__ != "GarbageCollectorThread"}


@pytest.fixture(params=[False, True], ids=["", "relayed"])
def serve(proxy_model: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Link]]:
    """``serve(callable, config=..., batches_in_flight=..., **options)``: a link whose proxy returns at once.

    It is on this machine, and then as on another one. Options are those of :meth:`~tests.unit.links.Link.serve`. The
    links have ended when the test has, and so have all threads.
    """
    links: list[Link] = []

    def serve(function: Any, *, config: Any = DECOUPLED, batches_in_flight: int = 8, **options: Any) -> Link:
        folder = tmp_path / str(len(links))
        folder.mkdir()
        links.append(Link(proxy_model, folder, batches_in_flight, request.param))
        links[-1].serve(function, config, **options)
        return links[-1]

    threads = _threads()
    yield serve
    for link in links:
        link.end()
    wait_for(lambda: _threads() <= threads, "all threads to end")


@pytest.fixture
def registry() -> prometheus_client.CollectorRegistry:
    """Metrics of one test."""
    return prometheus_client.CollectorRegistry()


@pytest.fixture
def no_threads_left() -> Iterator[None]:
    """Wait, when the test has ended, until there are no more threads than before, once garbage is collected."""
    threads = _threads()
    yield
    gc.collect()
    wait_for(lambda: _threads() <= threads, "all threads to end")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """An HTTP server of one model."""
    with serving(ModelServer()) as server:
        yield server


@pytest.fixture
def turnstile(server: ModelServer) -> Iterator[Turnstile]:
    """Holds up the inferences of :func:`server`, until the test ends at the latest."""
    server.hold = turnstile = Turnstile()
    yield turnstile
    turnstile.let_through(1000)


@pytest.fixture
def web() -> Iterator[Web]:
    """An HTTP server whose answers are scripted; it is live at first."""
    with serving(Web()) as server:
        yield server


@pytest.fixture
def inference() -> Iterator[Inference]:
    """A gRPC server whose answers are scripted; it is live at first."""
    with serving_grpc() as servicer:
        servicer.answer = service_pb2.ServerLiveResponse(live=True)
        yield servicer


@pytest.fixture
def live_address(scheme: str, web: Web, inference: Inference) -> str:
    """Where the server of a scheme listens."""
    return str(web.address if scheme == "http" else inference.address)


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address where nobody listens."""
    with closed_address() as address:
        yield address


def _specs(tensors: Any) -> list[TensorSpec]:
    return [TensorSpec(name, shape, dtype) for name, (shape, dtype) in tensors.items()]
