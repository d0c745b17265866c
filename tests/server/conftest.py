"""A real server for the tests, and clients of it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import RemoteTriton, Triton, TritonConfig, TritonSecurityConfig
from tests.server.gated import Gated
from tests.server.other_server import TOKEN, models_of, other_triton
from tests.server.own_server import address
from tests.server.ports import reserved_ports
from tests.server.traffic import Traffic, pending_requests
from tests.server.tritonclients import KINDS, Api
from tests.unit.generators import count_up

LOCALHOST = "127.0.0.1"
NUMBERS = count()
FORWARDED_RESERVED_HEADERS = ["headers", "priority", "triton_own"]

Bind = Callable[..., str]

# A shell's background jobs ignore it, and so would all processes that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def local_config(**options: Any) -> Iterator[TritonConfig]:
    """A configuration with free ports of this machine alone."""
    with reserved_ports(3) as (http, grpc, metrics):
        yield TritonConfig(
            http_address=LOCALHOST,
            http_port=http,
            grpc_address=LOCALHOST,
            grpc_port=grpc,
            metrics_address=LOCALHOST,
            metrics_port=metrics,
            **options,
        )


@pytest.fixture
def free_config() -> Iterator[TritonConfig]:
    """For a test that starts a server of its own."""
    with local_config() as config:
        yield config


@pytest.fixture(scope="module")
def triton_config() -> Iterator[TritonConfig]:
    """Configuration of the server that the tests of a module share."""
    pattern = "|".join(["x-.*", *FORWARDED_RESERVED_HEADERS])
    with local_config(http_header_forward_pattern=pattern, grpc_header_forward_pattern=pattern) as config:
        yield config


@pytest.fixture(scope="module")
def triton(triton_config: TritonConfig) -> Iterator[Triton]:
    """The server that the tests of a module share, open to everybody; :func:`bind` gives it models."""
    with Triton(config=triton_config, security_config=TritonSecurityConfig(restricted_endpoints=[])) as triton:
        yield triton


@pytest.fixture(scope="module")
def bind(triton: Triton) -> Bind:
    """``bind(callable, inputs, outputs, **options)``: serve a model, and return its name, which is new each time.

    Default tensors are one input ``x`` and one output ``y``, both float32 of shape ``(-1,)``. Options are ``strict``
    and those of ModelConfig.
    """

    def bind(
        infer_func: Any,
        inputs: list[Tensor] | None = None,
        outputs: list[Tensor] | None = None,
        *,
        strict: bool = False,
        **options: Any,
    ) -> str:
        name = f"model-{next(NUMBERS)}"
        triton.bind(
            name,
            infer_func,
            [Tensor(name="x", shape=(-1,), dtype=np.float32)] if inputs is None else inputs,
            [Tensor(name="y", shape=(-1,), dtype=np.float32)] if outputs is None else outputs,
            config=ModelConfig(**options),
            strict=strict,
        )
        return name

    return bind


@pytest.fixture
def gated(bind: Bind) -> Iterator[Gated]:
    """A model of one test's own, which answers once its gate is open."""
    gated = Gated()
    gated.model = bind(gated)
    yield gated
    gated.gate.open()


@pytest.fixture(scope="module")
def counter(bind: Bind) -> str:
    """Name of a decoupled model that gives as many responses as its input says."""
    return bind(count_up, decoupled=True, max_batch_size=8, batcher=None)


@pytest.fixture(scope="module", params=["http", "grpc"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def url(triton_config: TritonConfig, protocol: str) -> str:
    port = triton_config.http_port if protocol == "http" else triton_config.grpc_port
    return f"{protocol}://{LOCALHOST}:{port}"


@pytest.fixture(scope="module")
def grpc_url(triton_config: TritonConfig) -> str:
    """For clients that know no other protocol."""
    return f"grpc://{LOCALHOST}:{triton_config.grpc_port}"


@pytest.fixture
def composed(triton: Triton, url: str) -> Iterator[Callable[[Any], ModelClient]]:
    """``composed(infer)`` serves what calls other models as ``composed``, for one test, and returns a client."""
    with ExitStack() as stack:

        def bind(infer: Any) -> ModelClient:
            triton.bind("composed", infer)
            stack.callback(triton.unbind, "composed")
            return stack.enter_context(ModelClient(url, "composed"))

        yield bind


@pytest.fixture(scope="module")
def traffic(triton_config: TritonConfig, url: str) -> Traffic:
    return Traffic(url, f"http://{LOCALHOST}:{triton_config.metrics_port}/metrics")


@pytest.fixture(scope="module", params=KINDS)
def api(request: pytest.FixtureRequest, triton: Triton, triton_config: TritonConfig) -> Iterator[Api]:
    """Each of tritonclient's clients in turn, of the server that the tests of a module share."""
    port = triton_config.http_port if request.param.startswith("http") else triton_config.grpc_port
    with Api(request.param, f"{LOCALHOST}:{port}") as api:
        yield api


@pytest.fixture(scope="module")
def pending(triton_config: TritonConfig) -> Callable[[str], int]:
    """How many requests for a model, by its name, the server accepted and did not start yet."""
    return partial(pending_requests, f"http://{LOCALHOST}:{triton_config.metrics_port}/metrics")


@pytest.fixture(scope="module")
def server() -> Iterator[TritonConfig]:
    """Configuration of a server in another process, without models, which the tests of a module share."""
    with local_config() as config, other_triton(config, TOKEN):
        yield config


@pytest.fixture
def remote(server: TritonConfig) -> Iterator[RemoteTriton]:
    """Binds models to the server in another process, for one test; none is left there afterwards."""
    with RemoteTriton(address(server, "http"), access_token=TOKEN) as remote:
        yield remote
    assert models_of(server, TOKEN) == set()
