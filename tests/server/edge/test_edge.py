"""The edge as a part of a server: where it listens, what it asks for, how it starts and ends."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import signal
import socket
import ssl
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from pytriton.client import AsyncioModelClient, FuturesModelClient, ModelClient, Tls
from pytriton.client.exceptions import PyTritonClientError, PyTritonClientTlsError
from pytriton.config import TritonConfig
from pytriton.constants import HISTOGRAM_BOUNDS_S
from pytriton.exceptions import PyTritonServerError, PyTritonValidationError, PyTritonWorkerError
from pytriton.rest import RestConfig
from pytriton.server.access import Restrictions
from pytriton.server.edge import Edge
from pytriton.triton import RemoteTriton, Triton, TritonLifecyclePolicy, TritonSecurityConfig
from pytriton.workers import Processes
from tests.server.conftest import LOCALHOST, local_config
from tests.server.edge.cases import infer, numbers
from tests.server.edge.wire import Client, Request, connected
from tests.server.gated import Gated
from tests.server.own_server import TENSORS, double, server_of, servers_of, serving
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S, is_alive, wait_for
from tests.server.tls import Certificates

pytestmark = pytest.mark.either_proxy

X = np.ones((1, 2), np.float32)
OPEN = TritonSecurityConfig(restricted_endpoints=[])
LATER = TritonLifecyclePolicy(launch_triton_on_startup=False)
INFER = infer("m", numbers())


@contextmanager
def native(
    function: Any = double, security: TritonSecurityConfig = OPEN, workspace: Any = None, **options: Any
) -> Iterator[Triton]:
    """A server with the edge, and the model ``m``; ``triton.config`` are its options."""
    with (
        local_config(http_frontend="native", **options) as config,
        serving(config, function, security_config=security, workspace=workspace) as triton,
    ):
        triton.run()
        triton.config = config
        yield triton


def url_of(triton: Triton) -> str:
    return f"http://{LOCALHOST}:{triton.config.http_port}"


def folder_of(triton: Triton) -> Path:
    """The folder of the edge's files."""
    return triton._workspace.path / "http"


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[str]:
    """A folder whose name is short enough for sockets."""
    descriptor = os.open(tmp_path, os.O_PATH)
    yield f"/proc/{os.getpid()}/fd/{descriptor}"
    os.close(descriptor)


# Where it listens


def test_only_this_user_reaches_the_endpoint_behind_the_edge():
    with native() as triton:
        folder = folder_of(triton)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "edge.json").stat().st_mode) == 0o600
        assert (folder / "triton.sock").is_socket()
        assert triton.endpoints().http == f"http+unix://{folder}/control.sock"


def test_a_workspace_with_a_long_path_has_sockets_too(tmp_path):
    workspace = tmp_path / ("w" * 100) / ("x" * 100)
    with native(workspace=workspace) as triton, ModelClient(url_of(triton), "m") as client:
        assert np.array_equal(client.infer_batch(X)["y"], X * 2)
    assert not workspace.exists()


def test_a_server_may_listen_on_a_unix_socket_for_all_clients(sockets, tmp_path):
    path = f"{sockets}/x.sock"
    url = f"http+unix://{path}"
    with local_config(http_frontend="native") as config:
        config.http_address, config.metrics_address = f"unix:{path}", None
        with serving(config, security_config=OPEN) as triton:
            triton.run()
            assert (tmp_path / "x.sock").is_socket()
            with ModelClient(url, "m") as client, FuturesModelClient(url, "m") as futures:
                assert np.array_equal(client.infer_batch(X)["y"], X * 2)
                assert np.array_equal(futures.infer_batch(X).result(30)["y"], X * 2)

            async def run() -> Any:
                async with AsyncioModelClient(url, "m") as client:
                    return await client.infer_batch(X)

            assert np.array_equal(asyncio.run(run())["y"], X * 2)
            with RemoteTriton(url) as remote:
                remote.bind("n", double, *TENSORS)
                with ModelClient(url, "n") as client:
                    assert np.array_equal(client.infer_batch(X)["y"], X * 2)
            with httpx.Client(timeout=DEADLINE_S) as http:  # for this machine alone
                assert http.get(f"http://{LOCALHOST}:{config.metrics_port}/metrics").status_code == 200
        assert not (tmp_path / "x.sock").exists()


def test_the_socket_of_a_server_that_was_killed_is_taken_over_and_that_of_another_is_not(sockets, tmp_path):
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(f"{sockets}/x.sock"))
        listener.listen()
        with local_config(http_frontend="native") as config:
            config.http_address = f"unix:{sockets}/x.sock"
            with pytest.raises(PyTritonServerError, match="another program does"), serving(config):
                pass
    assert path.is_socket()
    config.http_address = f"unix:{sockets}/x.sock"
    with serving(config, security_config=OPEN) as triton:
        triton.run()
        with ModelClient(f"http+unix://{sockets}/x.sock", "m") as client:
            assert np.array_equal(client.infer_batch(X)["y"], X * 2)


def test_a_socket_is_not_made_in_place_of_a_file_or_without_a_folder(tmp_path, sockets):
    (tmp_path / "file").write_text("precious")
    for name, message in (("file", "there is a file"), ("none/x.sock", "there is no folder")):
        with local_config(http_frontend="native") as config:
            config.http_address = f"unix:{sockets}/{name}"
            with pytest.raises(PyTritonServerError, match=message), serving(config):
                pass
    assert (tmp_path / "file").read_text() == "precious"


def test_ipv6_is_served():
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
    with local_config(http_frontend="native") as config:
        config.http_address = "::1"
        with serving(config, security_config=OPEN) as triton:
            triton.run()
            with ModelClient(f"http://[::1]:{config.http_port}", "m") as client:
                assert np.array_equal(client.infer_batch(X)["y"], X * 2)


def test_a_port_that_is_taken_is_named_before_the_server_starts(free_config):
    free_config.http_frontend = "native"
    where = f"{LOCALHOST}:{free_config.http_port}"
    with (
        socket.create_server((LOCALHOST, free_config.http_port)),
        pytest.raises(PyTritonServerError, match=f"cannot listen on {where}"),
        serving(free_config) as triton,
    ):
        triton.run()


def test_http_may_be_off(free_config):
    free_config.http_frontend, free_config.allow_http = "native", False
    with serving(free_config) as triton:
        triton.run()
        with pytest.raises(ConnectionRefusedError):
            Client((LOCALHOST, free_config.http_port))
        with ModelClient(f"grpc://{LOCALHOST}:{free_config.grpc_port}", "m") as client:
            assert np.array_equal(client.infer_batch(X)["y"], X * 2)


def test_several_loops_share_the_port():
    with native(http_thread_count=3) as triton, ExitStack() as stack:
        clients = [stack.enter_context(ModelClient(url_of(triton), "m")) for _ in range(12)]
        for _ in range(3):
            assert all(np.array_equal(client.infer_batch(X)["y"], X * 2) for client in clients)
        pid = server_of(triton.config)
        names = [path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm")]
        assert len(names) > 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"http_use_ssl": True}, "http_use_ssl needs http_server_cert"),
        ({"http_use_ssl_mutual": True}, "http_use_ssl_mutual needs http_server_cert"),
        ({"http_use_ssl": True, "http_server_cert": "/none", "http_server_key": "/none"}, "cannot be read"),
    ],
)
def test_certificates_are_checked_before_the_start(free_config, options, message):
    for name, value in {"http_frontend": "native", **options}.items():
        setattr(free_config, name, value)
    with pytest.raises(PyTritonValidationError, match=message), serving(free_config) as triton:
        triton.run()


@pytest.mark.parametrize("options", [{"http_use_ssl": True}, {"http_max_body_bytes": 10}, {"http_address": "unix:/x"}])
def test_options_of_the_native_edge_alone_are_refused_with_the_other_one(free_config, options):
    free_config.http_frontend = "triton"
    for name, value in options.items():
        setattr(free_config, name, value)
    with pytest.raises(PyTritonValidationError, match="set http_frontend='native'"):
        Triton(config=free_config)


# What it asks for

TOKEN = "s3cret"
RESTRICTED = {
    "model-repository": Request("POST", "/v2/repository/index"),
    "shared-memory": Request("GET", "/v2/systemsharedmemory/status"),
    "statistics": Request("GET", "/v2/models/m/stats"),
    "trace": Request("GET", "/v2/trace/setting"),
    "logging": Request("GET", "/v2/logging"),
    "inference": INFER,
    "health": Request("GET", "/v2/health/live"),
    "metadata": Request("GET", "/v2/models/m"),
    "model-config": Request("GET", "/v2/models/m/config"),
}
GENERATE = [Request("POST", f"/v2/models/m/{action}", b'{"x": 1}') for action in ("generate", "generate_stream")]


@pytest.fixture(scope="module")
def guarded() -> Iterator[dict[str, TritonConfig]]:
    """Servers with both endpoints, which ask for a token everywhere."""
    security = TritonSecurityConfig(TOKEN, [*RESTRICTED])
    with ExitStack() as stack:
        configs = {}
        for name in ("native", "triton"):
            config = stack.enter_context(local_config(http_frontend=name))
            triton = stack.enter_context(serving(config, security_config=security))
            triton.run()
            configs[name] = config
        yield configs


def asked(config: TritonConfig, request: Request, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with connected(config) as client:
        return client.ask(Request(request.method, request.target, request.body, {**request.headers, **named}))


@pytest.mark.parametrize("request_", [*RESTRICTED.values(), *GENERATE], ids=lambda request: request.target)
def test_restricted_endpoints_ask_for_the_same_header_with_both_endpoints(guarded, request_):
    for headers in ({}, {"triton_access_token": "wrong"}, {"triton_access_token": f"{TOKEN} "[:3]}):
        native, triton = (asked(guarded[name], request_, **headers) for name in ("native", "triton"))
        assert native.status == triton.status == 403
        assert native.error == triton.error
    for headers in ({"triton_access_token": TOKEN}, {"Triton_Access_Token": TOKEN}):
        native, triton = (asked(guarded[name], request_, **headers) for name in ("native", "triton"))
        assert native.status == triton.status != 403


@pytest.mark.parametrize(
    "target",
    [
        "/v2//repository/index",
        "//v2/repository/index",
        "/v2/./repository/index",
        "/v2/x/../repository/index",
        "/v2/repository%2findex",
        "/v2/%72epository/index",
        "/v2/repository/index/",
        "/v2/repository/index?x",
        "/v2/repository/index#x",
        "/v2/repository/index%00",
        "/v2/repository/index%20",
        "/V2/repository/index",
        "/v2/Repository/index",
        "http://localhost/v2/repository/index",
        "http://localhost/v2/repository/../repository/index",
        "/v2/repository/;x/index",
        "/v2/repository\\index",
        "/v2/models/m/../../repository/index",
        "/v2/models/m/infer/../../../repository/index",
        "/predict/../v2/repository/index",
    ],
)
def test_no_other_form_of_a_path_leads_around_the_token(guarded, target):
    for method in ("POST", "GET"):
        with connected(guarded["native"]) as client:
            answer = client.ask(Request(method, target))
        assert answer.status >= 400
        assert "READY" not in f"{answer.json}{answer.data!r}"


def test_a_token_sent_twice_opens_nothing_unless_both_are_right(guarded):
    request = RESTRICTED["model-repository"].encoded()
    lines = [b"triton-access-token: wrong", b"triton-access-token: " + TOKEN.encode()]
    with connected(guarded["native"]) as client:
        client.send(request.replace(b"\r\n", b"\r\n" + b"\r\n".join(lines) + b"\r\n", 1))
        assert client.answer().status in (400, 403)


def test_the_token_is_not_on_the_command_line_nor_in_the_environment(guarded):
    pid = server_of(guarded["native"])
    for name in ("cmdline", "environ"):
        assert TOKEN.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()


def test_the_hosting_process_needs_no_token_over_the_private_socket():
    with native(security=TritonSecurityConfig(TOKEN, [*RESTRICTED])) as triton:
        triton.bind("later", double, *TENSORS)
        assert [each.name for each in triton.statistics("later")] == ["later"]
        triton.unbind("later")


# TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> tuple[Certificates, Certificates]:
    """Of a server, and of a client."""
    return tuple(Certificates.in_folder(tmp_path_factory.mktemp(name)) for name in ("server", "client"))  # type: ignore[return-value]


def tls_options(server: Certificates) -> dict[str, Any]:
    return {"http_use_ssl": True, "http_server_cert": server.chain, "http_server_key": server.key}


def test_clients_reach_an_encrypted_endpoint(certificates):
    server, _ = certificates
    with native(**tls_options(server)) as triton:
        with ModelClient(url_of(triton), "m", tls=Tls(root_certificates=server.root)) as client:
            large = np.ones((4, 500_000), np.float32)
            assert np.array_equal(client.infer_batch(X)["y"], X * 2)
            assert np.array_equal(client.infer_batch(large)["y"], large * 2)
        with (
            pytest.raises(PyTritonClientTlsError),
            ModelClient(url_of(triton), "m", tls=Tls(), init_timeout_s=5) as client,
        ):
            client.infer_batch(X)
        with connected(triton.config) as plain, suppress(ConnectionError):
            plain.send(INFER.encoded())
            assert plain.is_closed() or plain.socket.recv(1)


def test_an_endpoint_may_ask_for_certificates_of_clients(certificates):
    server, known = certificates
    options = tls_options(server) | {"http_use_ssl_mutual": True, "http_root_cert": known.root}
    with native(**options) as triton:
        tls = Tls(root_certificates=server.root, private_key=known.key, certificate_chain=known.chain)
        with ModelClient(url_of(triton), "m", tls=tls) as client:
            assert np.array_equal(client.infer_batch(X)["y"], X * 2)
        for tls in (
            Tls(root_certificates=server.root),
            Tls(root_certificates=server.root, private_key=server.key, certificate_chain=server.chain),
        ):
            with (
                pytest.raises(PyTritonClientError),
                ModelClient(url_of(triton), "m", tls=tls, init_timeout_s=1) as client,
            ):
                client.infer_batch(X)


def test_old_versions_of_tls_are_refused(certificates):
    server, _ = certificates
    with native(**tls_options(server)) as triton:
        context = ssl.create_default_context(cafile=server.root)
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        with connected(triton.config) as client, pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(client.socket, server_hostname=LOCALHOST)


# Whether it is ready


def made_when(path: str) -> Any:
    """Makes the callable of a worker when a file is there; raises if it has content."""
    wait_for(Path(path).exists, "the file")
    if message := Path(path).read_text():
        raise ValueError(message)
    return double


def status_of(client: httpx.Client, path: str) -> int:
    try:
        return client.get(path).status_code
    except httpx.TransportError:
        return 0


def test_a_server_is_ready_when_the_models_are_that_were_bound_before_it_started(tmp_path):
    go = tmp_path / "go"
    with (
        reserved_ports(1) as (port,),
        local_config(http_frontend="native") as config,
        httpx.Client(base_url=f"http://{LOCALHOST}:{config.http_port}", timeout=DEADLINE_S) as client,
        ThreadPoolExecutor(1) as pool,
        serving(
            config, security_config=OPEN, triton_lifecycle_policy=LATER, rest=RestConfig(port=port, address=LOCALHOST)
        ) as triton,
    ):
        triton.bind("slow", Processes(partial(made_when, str(go)), count=1), *TENSORS)
        running = pool.submit(triton.run)
        wait_for(lambda: status_of(client, "/v2/models/m/ready") == 200, "the first model")
        assert [status_of(client, f"/v2/health/{what}") for what in ("live", "ready")] == [200, 400]
        wait_for(lambda: status_of(client, "/health/live") == 200, "the app")
        assert status_of(client, "/health/ready") == 503
        go.touch()
        running.result()
        assert [status_of(client, path) for path in ("/v2/health/ready", "/health/ready")] == [200, 200]
        killed = servers_of(config)
        os.kill(*killed, signal.SIGKILL)
        wait_for(lambda: servers_of(config) not in ([], killed), "another server")
        wait_for(lambda: status_of(client, "/v2/health/ready") == 200, "its models")
        assert [status_of(client, f"/v2/models/{name}/ready") for name in ("m", "slow")] == [200, 200]


def test_a_server_is_ready_without_a_model_that_it_refused(tmp_path):
    go = tmp_path / "go"
    go.write_text("no weights")
    with (
        local_config(http_frontend="native") as config,
        httpx.Client(base_url=f"http://{LOCALHOST}:{config.http_port}", timeout=DEADLINE_S) as client,
        serving(config, security_config=OPEN, triton_lifecycle_policy=LATER) as triton,
    ):
        triton.bind("broken", Processes(partial(made_when, str(go)), count=1), *TENSORS)
        with pytest.raises(PyTritonWorkerError, match="no weights"):
            triton.run()
        assert [status_of(client, path) for path in ("/v2/health/ready", "/v2/models/m/ready")] == [200, 200]


# Its end


def test_a_stop_answers_requests_in_flight_and_closes_idle_connections():
    gated = Gated()
    with native(gated) as triton, connected(triton.config) as idle, connected(triton.config) as busy:
        assert idle.ask(Request("GET", "/v2/health/live")).status == 200
        busy.send(INFER.encoded())
        gated.wait_called()
        stop = threading.Thread(target=triton.stop)
        stop.start()
        assert idle.is_closed()
        gated.gate.open()
        answer = busy.answer("POST")
        stop.join()
    assert answer.status == 200
    assert not answer.keeps_alive


def test_no_request_fails_while_a_server_under_load_stops_except_those_that_were_not_accepted():
    def load(url: str, failures: list[BaseException], answered: list[int]) -> None:
        with httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), timeout=DEADLINE_S) as client:
            while True:
                try:
                    response = client.post(url, content=INFER.body)
                except httpx.ConnectError:
                    return
                except httpx.HTTPError as error:
                    failures.append(error)
                    return
                answered.append(response.status_code)

    failures, answered = list[BaseException](), list[int]()
    with native() as triton:
        threads = [
            threading.Thread(target=load, args=(f"{url_of(triton)}{INFER.target}", failures, answered))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(answered) > 50, "answers")
    for thread in threads:
        thread.join()
    assert failures == []
    assert {*answered} == {200}


def test_a_server_that_was_killed_is_launched_again_on_the_same_port_and_sockets(sockets):
    with local_config(http_frontend="native") as config, serving(config, security_config=OPEN) as triton:
        triton.run()
        for _ in range(2):
            pid = server_of(config)
            with connected(config) as client:
                os.kill(pid, signal.SIGKILL)
                assert client.is_closed()
            wait_for(lambda pid=pid: not is_alive(pid) and servers_of(config), "another server")
            triton.wait_for_ready()
            with ModelClient(f"http://{LOCALHOST}:{config.http_port}", "m") as client:
                assert np.array_equal(client.infer_batch(X)["y"], X * 2)


def test_unbinding_waits_for_requests_that_are_being_received():
    with native() as triton, connected(triton.config) as client:
        triton.bind("other", double, *TENSORS)
        data = infer("other", numbers()).encoded()
        client.send(data[:-5])
        unbind = threading.Thread(target=triton.unbind, args=("other",))
        unbind.start()
        client.send(data[-5:])
        assert client.answer("POST").status == 200
        unbind.join()


# What it writes


def test_the_access_log_has_a_line_of_json_per_request(tmp_path):
    log = tmp_path / "access.log"
    with native(http_access_log=str(log)) as triton, connected(triton.config) as client:
        assert client.ask(INFER).status == 200
        assert client.ask(Request("GET", '/v2/"unknown"')).status == 404
        wait_for(lambda: log.exists() and log.read_text().count("\n") >= 2, "two lines")
    first, second = map(json.loads, log.read_text().splitlines()[:2])
    assert (first["method"], first["status"]) == ("POST", 200)
    assert second["status"] == 404
    assert "unknown" in json.dumps(second)


def test_the_metrics_are_at_the_public_port_where_that_is_asked_for():
    with native(http_metrics=True) as triton, httpx.Client(timeout=DEADLINE_S) as client:
        client.post(f"{url_of(triton)}{INFER.target}", content=INFER.body)
        page = client.get(f"{url_of(triton)}/metrics").text
    assert "nv_inference_request_success" in page
    bounds = re.findall(r'^pytriton_http_request_duration_seconds_bucket{route="infer",le="(.*)"}', page, re.MULTILINE)
    assert [float(bound) for bound in bounds] == [*HISTOGRAM_BOUNDS_S, math.inf]


def test_metrics_are_not_at_the_public_port_otherwise():
    with native() as triton, httpx.Client(timeout=DEADLINE_S) as client:
        assert client.get(f"{url_of(triton)}/metrics").status_code == 404


def test_the_options_are_those_of_the_configuration(tmp_path):
    config = TritonConfig(
        http_address="::1", http_port=1, http_thread_count=2, http_header_forward_pattern="x-.*",
        http_restricted_api="inference:Key=value", trace_config=["level=TIMESTAMPS"],
    )  # fmt: skip
    edge = Edge(config, Restrictions.merge(config, OPEN), tmp_path, RestConfig().for_edge())
    edge.listener = 7
    options = edge.options()
    assert (
        options
        | {
            "address": "::1",
            "port": 1,
            "threads": 2,
            "max_nesting": 64,
            "header_forward_pattern": "x-.*",
            "is_traced": True,
            "application": f"{tmp_path}/http/rest.sock",
            "application_listener": 7,
            "application_everywhere": True,
            "access": [{"endpoints": ["inference"], "header": "Key", "value": "value"}],
        }
        == options
    )
    server = edge.server_config()
    assert (server.http_address, server.http_restricted_api) == (f"unix:{tmp_path}/http/triton.sock", None)
    assert server.metrics_address == f"unix:{tmp_path}/http/metrics.sock"


def listens(config: TritonConfig) -> bool:
    """Whether a server accepts connections."""
    with closing(socket.socket()) as probe:
        return probe.connect_ex((LOCALHOST, config.http_port)) == 0


def test_a_server_that_ends_by_itself_does_not_wait_for_its_own_connections(caplog):
    """As one that a service manager signals."""
    policy = TritonLifecyclePolicy(restart_server=False)
    with (
        local_config(http_frontend="native", exit_timeout_secs=4) as config,
        serving(config, triton_lifecycle_policy=policy) as triton,
    ):
        triton.run()
        with connected(config) as client:  # which the endpoint behind answers
            assert client.ask(Request("GET", "/v2/health/live")).status == 200
        server = triton._server
        os.kill(server_of(config), signal.SIGTERM)
        assert server.ends_within(30)
    assert "Exit timeout expired" not in "\n".join(server._process._tail)


def test_each_of_several_drains_is_answered():
    """As of a server that is signalled together with the process that launched it."""
    gated = Gated()
    with native(gated) as triton, connected(triton.config) as busy:
        busy.send(INFER.encoded())
        gated.wait_called()
        drains = [triton._edge.drain() for _ in range(2)]
        wait_for(lambda: not listens(triton.config), "the drain to begin")
        early = [each.wait(time.monotonic() + 0.2) for each in drains]
        gated.gate.open()
        assert busy.answer("POST").status == 200
        late = [each.wait(time.monotonic() + 30) for each in drains]
    assert (early, late) == ([False, False], [True, True])


def test_the_connection_of_a_drain_is_closed_when_the_server_is_killed():
    gated = Gated()
    with native(gated) as triton, connected(triton.config) as busy:
        busy.send(INFER.encoded())
        gated.wait_called()
        server = triton._server
        assert server.refuse_connections()
        assert not server.wait_http_answered()
        with triton._lock:  # so that it is not launched again meanwhile
            server.kill()
            assert server._edge_drain._socket.fileno() == -1
        gated.gate.open()
