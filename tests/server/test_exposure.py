"""Every route of every port with every credential, against what the table of groups says."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import grpc
import httpx
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from pytriton.exceptions import PyTritonValidationError
from pytriton.rest import ApiKey, RestConfig, create_app
from pytriton.security import APPLICATION_ROUTES, ENDPOINT_GROUPS, GRPC_CALLS, HTTP_ROUTES, VALID_TRITON_ENDPOINTS
from pytriton.server.edge import serves_grpc
from pytriton.server.endpoints import Exposure
from pytriton.triton import Triton, TritonSecurityConfig
from tests.server.conftest import LOCALHOST, local_config
from tests.server.ports import reserved_ports
from tests.server.processes import DEADLINE_S
from tests.server.rest.ways import mounted
from tests.server.tls import Certificates

pytestmark = [pytest.mark.either_proxy, pytest.mark.timeout(300)]

SERVERS, APPS, KEY, OTHER = "token-of-the-server", "token-of-the-app", "key-of-a-team", "value-of-a-rule"
KEYS = [ApiKey(name="team", sha256=hashlib.sha256(KEY.encode()).hexdigest(), models=["shout"])]
NAMES = {"{model}": "shout", "{version}": "1", "{region}": "none", "{name}": "app.js"}
RESTRICTED = b"restricted"
FOR_OPERATORS = "/pages/log", "/pages/commands"


@dataclass(frozen=True)
class Credential:
    """What a client sends.

    Attributes:
        headers: Over HTTP; over gRPC with the prefix of the server, where that has them.
        opens: The needs of the table that this meets, at the server's routes.
        opens_application: Likewise at the app's.
    """

    headers: dict[str, str]
    opens: tuple[str, ...] = ()
    opens_application: tuple[str, ...] = ()


class Route(NamedTuple):
    """A request at a port.

    Attributes:
        method: Of HTTP.
        path: Its model, version and so on are ``NAMES``.
        group: Of endpoints; empty for files without data.
        redirect: A path to which a header leads instead.
    """

    method: str
    path: str
    group: str
    redirect: str = ""


CREDENTIALS = {
    "nothing": Credential({}),
    "a wrong token": Credential({"triton-access-token": f"{SERVERS}x", "Authorization": "Bearer wrong"}),
    "the token": Credential({"triton-access-token": SERVERS}, ("token",), ("token",)),
    "the token as a bearer": Credential({"Authorization": f"Bearer {SERVERS}"}, ("token",), ("token",)),
    "the app's token": Credential({"Authorization": f"Bearer {APPS}"}, (), ("app",)),
    "a key": Credential({"Authorization": f"Bearer {KEY}"}, (), ("key",)),
    "a wrong key": Credential({"Authorization": f"Bearer {KEY}x"}),
    "a header of a rule": Credential({"x-team": OTHER}, ("header",), ("header",)),
}
CLOUDS = {"allow_vertex_ai": True, "allow_sagemaker": True, "vertex_ai_default_model": "shout"}
ENVIRONMENT = {  # of the clouds' containers
    "AIP_PREDICT_ROUTE": "/predict",
    "AIP_HEALTH_ROUTE": "/health",
    "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "shout",
}
REDIRECT = "X-Vertex-Ai-Triton-Redirect"
INSTANCES = {"instances": ["a"]}
CONFIGURATIONS: dict[str, tuple[dict[str, Any], TritonSecurityConfig, dict[str, Any]]] = {
    "default": ({}, TritonSecurityConfig(SERVERS), {}),
    "metrics at the HTTP port": ({"http_metrics": True}, TritonSecurityConfig(SERVERS), {}),
    "one port": ({"has_one_port": True}, TritonSecurityConfig(SERVERS), {}),
    "one port where everything is protected": (
        {"has_one_port": True},
        TritonSecurityConfig(SERVERS, VALID_TRITON_ENDPOINTS),
        {},
    ),
    "open": ({}, TritonSecurityConfig(restricted_endpoints=[]), {}),
    "inference": ({}, TritonSecurityConfig(SERVERS, ["inference", "metadata"]), {}),
    "everything": ({"http_metrics": True}, TritonSecurityConfig(SERVERS, ENDPOINT_GROUPS), {}),
    "token of the app": ({}, TritonSecurityConfig(SERVERS), {"access_token": APPS}),
    "keys": ({}, TritonSecurityConfig(SERVERS), {"api_keys": KEYS}),
    "keys beside open models": ({}, TritonSecurityConfig(SERVERS, ["trace"]), {"api_keys": KEYS}),
    "rule of the user": ({"http_restricted_api": f"inference,trace:X-Team={OTHER}"}, TritonSecurityConfig(SERVERS), {}),
    "clouds": (CLOUDS, TritonSecurityConfig(SERVERS), {}),
    "clouds with keys": (CLOUDS, TritonSecurityConfig(SERVERS), {"api_keys": KEYS}),
    "clouds where everything is protected": (CLOUDS, TritonSecurityConfig(SERVERS, ENDPOINT_GROUPS), {}),
    "clouds of Triton": ({**CLOUDS, "http_frontend": "triton"}, TritonSecurityConfig(SERVERS), {}),
    "endpoint of Triton": ({"http_frontend": "triton"}, TritonSecurityConfig(SERVERS, VALID_TRITON_ENDPOINTS), {}),
}
FEW = ("default", "keys", "one port", "clouds")  # each group, credential and port


def shout(text: str) -> str:
    return text.upper()


@contextmanager
def serving(name: str, **options: Any) -> Iterator[Triton]:
    given, security, rest = CONFIGURATIONS[name]
    with ExitStack() as stack:
        port, vertex_ai, sagemaker = stack.enter_context(reserved_ports(3))
        if given.get("allow_vertex_ai"):
            given = {**given, "vertex_ai_port": vertex_ai, "sagemaker_port": sagemaker}
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for variable, value in ENVIRONMENT.items():
                patch.setenv(variable, value)
        given = {"http_frontend": "native", **given, **options}
        has_one_port, is_local = given.pop("has_one_port", False), given.pop("is_local", True)
        config = stack.enter_context(local_config(**given))
        if not is_local:
            config = replace(config, http_address="0.0.0.0")
        if has_one_port:
            config = replace(config, grpc_port=config.http_port)
        app = RestConfig(port=port, mcp=True, **rest)
        triton = stack.enter_context(Triton(config=config, security_config=security, rest=app))
        triton.bind(shout)
        triton.run()
        yield triton


def is_met(needs: str, opened: tuple[str, ...], app_has_token: bool) -> bool:
    """Whether a credential meets one of the needs, such as ``token or key``."""
    parts = [each.partition(" ")[0] for each in needs.split(" or ")]
    return needs == "open" or any(
        each in opened or (each == "token" and "app" in opened and app_has_token) for each in parts
    )


def routes_of(exposure: Exposure) -> list[Route]:
    """The routes at a port."""
    versions = [
        (method, path.replace("{model}", "{model}/versions/1"), group)
        for method, path, group in HTTP_ROUTES
        if path.startswith("/v2/models/{model}") and "trace" not in path  # which has no versions
    ]
    own = [("GET", "/metrics", "metrics")] if "metrics" in exposure.needs else []
    posts = ("inference", "model-repository")
    clouds = [("GET", "/health", "health"), ("POST", "/predict", "inference")]
    found = {
        "HTTP": [*HTTP_ROUTES, *versions, *own],
        "metrics": own,
        "app": [
            ("POST" if group in posts else "GET", path, group or "") for path, (group, _) in APPLICATION_ROUTES.items()
        ],
        "Vertex AI": clouds,
        "SageMaker": [
            ("GET", "/ping", "health"),
            ("POST", "/invocations", "inference"),
            ("GET", "/models", "model-repository"),
            ("POST", "/models", "model-repository"),
        ],
    }[exposure.name]
    routes = [Route(*each) for each in found if not each[2] or each[2] in exposure.needs]
    if exposure.name == "Vertex AI":
        routes += [
            Route(method, "/predict", group, path[start:])
            for method, path, group in [*HTTP_ROUTES, *versions]
            for start in (0, 1)  # with the first slash and without
        ]
    assert {route.group for route in routes} - {""} == exposure.needs.keys()
    return routes


def is_refused(response: httpx.Response) -> bool:
    return response.status_code == 401 or (response.status_code == 403 and RESTRICTED in response.content)


def ask(client: httpx.Client, base: str, route: Route, headers: dict[str, str]) -> httpx.Response:
    path, redirect = route.path, route.redirect
    for name, value in NAMES.items():
        path, redirect = path.replace(name, value), redirect.replace(name, value)
    if redirect:
        headers = {**headers, REDIRECT: redirect}
    with client.stream(route.method, base + path, headers=headers) as response:
        if response.status_code >= 400:
            response.read()
        return response


def walk_http(exposure: Exposure, triton: Triton, client: httpx.Client, base: str) -> list[str]:
    """The routes that do not answer as the table says."""
    is_application, wrong = exposure.name == "app", []
    app_has_token = triton._rest.access_token is not None
    exposure_of_http = f":{triton._config.http_port}"
    for route in routes_of(exposure):
        path = route.path
        if is_application and path == "/metrics" and triton._config.http_metrics and base.endswith(exposure_of_http):
            continue  # which are the server's there
        needs = exposure.needs.get(route.group, "open").removeprefix("certificate, ").replace("certificate", "open")
        for name, credential in CREDENTIALS.items():
            opened = credential.opens_application if is_application else credential.opens
            if triton._config.http_frontend == "triton" and not is_application and name.endswith("bearer"):
                opened = ()  # Triton's own endpoint knows its header alone
            is_for_operators = path in FOR_OPERATORS and is_application
            if is_for_operators and triton.get_access_token():
                opened = tuple({*opened} & {"token"})
            expected = not is_met(needs, opened, app_has_token)
            response = ask(client, base, route, credential.headers)
            refused = is_refused(response)
            if needs == "closed" or is_for_operators:  # which tells a key that it is none of theirs
                refused |= response.status_code == 403
            if refused != expected:
                wrong.append(f"{exposure.name} {route}, {needs}, with {name}: {response.status_code}")
    return wrong


def grpc_calls(channel: grpc.Channel, is_edge: bool) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """The names of all calls, their groups, and what makes them."""
    requests = {descriptor.name: descriptor.input_type for descriptor in _service().methods}
    assert requests.keys() == GRPC_CALLS.keys()
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    for name, kind in requests.items():
        request, call = getattr(service_pb2, kind.name)(), getattr(stub, name)
        is_stream = name == "ModelStreamInfer"
        yield name, GRPC_CALLS[name], partial(_drained, call, request) if is_stream else partial(call, request)
    if is_edge:
        yield "health", "health", partial(channel.unary_unary("/grpc.health.v1.Health/Check"), b"")
        for version in ("v1", "v1alpha"):
            call = channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")
            yield f"reflection {version}", "metadata", partial(_drained, call, b"\x3a\0")  # list_services


def _drained(call: Callable[..., Any], request: Any, **options: Any) -> None:
    for _ in call(iter([request]), **options):
        pass


def walk_grpc(exposure: Exposure, is_edge: bool) -> list[str]:
    wrong = []
    with grpc.insecure_channel(exposure.address) as channel:
        for name, group, call in grpc_calls(channel, is_edge):
            needs = exposure.needs[group]
            for which, credential in CREDENTIALS.items():
                metadata = [(f"triton-grpc-protocol-{key.lower()}", value) for key, value in credential.headers.items()]
                error = None
                try:
                    call(metadata=metadata, timeout=DEADLINE_S)
                except grpc.RpcError as raised:
                    error = raised
                refused = (
                    error is not None
                    and error.code() == grpc.StatusCode.UNAVAILABLE
                    and "restricted" in error.details()
                )
                opened = () if which.endswith("bearer") else credential.opens
                if refused != (not is_met(needs, opened, False)):
                    wrong.append(f"gRPC {name}, {needs}, with {which}: {error}")
    return wrong


def _service() -> Any:
    return service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]


@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.thorough) for name in CONFIGURATIONS]
)
def test_every_route_of_every_port_asks_for_what_the_table_says(name):
    with serving(name) as triton, httpx.Client(timeout=DEADLINE_S, trust_env=False) as client:
        found = triton.exposure()
        clouds = {"Vertex AI", "SageMaker"} if name.startswith("clouds") else set()
        assert {each.name for each in found} == {"HTTP", "gRPC", "metrics", "app", *clouds}
        wrong = []
        for exposure in found:
            if exposure.name == "gRPC":
                wrong += walk_grpc(exposure, serves_grpc(triton._config))
            else:
                wrong += walk_http(exposure, triton, client, f"http://{exposure.address}")
        assert wrong == []


@pytest.mark.parametrize("name", ["default", "everything", "token of the app", "keys"])
def test_a_mounted_application_asks_for_the_same(name):
    with serving(name) as triton, reserved_ports(1) as (port,):
        app = create_app(triton, triton._rest)
        exposure = next(each for each in triton.exposure() if each.name == "app")
        with mounted(app, port), httpx.Client(timeout=DEADLINE_S, trust_env=False) as client:
            assert walk_http(exposure, triton, client, f"http://{LOCALHOST}:{port}/models") == []


def test_keys_of_a_mounted_app_before_models_that_are_open_elsewhere_are_said(caplog):
    for endpoints, said in ([*VALID_TRITON_ENDPOINTS], False), (None, True):
        with (
            local_config() as config,
            Triton(config=config, security_config=TritonSecurityConfig(SERVERS, endpoints)) as triton,
        ):
            create_app(triton)
            assert "without one" not in caplog.text
            create_app(triton, RestConfig(api_keys=KEYS))
            assert ("without one at the server's own ports" in caplog.text) == said


def test_clients_without_a_certificate_reach_no_port_of_http(tmp_path):
    files, client_files = tmp_path / "server", tmp_path / "client"
    files.mkdir()
    client_files.mkdir()
    server, client = Certificates.in_folder(files), Certificates.in_folder(client_files)
    options = {
        "http_use_ssl_mutual": True,
        "http_server_cert": server.chain,
        "http_server_key": server.key,
        "http_root_cert": client.root,
    }
    with serving("default", **options) as triton:
        trust = ssl.create_default_context(cafile=server.root)
        known = ssl.create_default_context(cafile=server.root)
        known.load_cert_chain(client.chain, client.key)
        exposed = [each for each in triton.exposure() if each.name in ("HTTP", "app")]
        assert [each.tls for each in exposed] == ["mutual TLS"] * 3
        for exposure in exposed:
            assert exposure.needs["inference"] == "certificate"
            for scheme, context in (("http", trust), ("https", trust)):
                with httpx.Client(verify=context, timeout=DEADLINE_S, trust_env=False) as stranger:
                    for route in routes_of(exposure):
                        with pytest.raises(httpx.TransportError):
                            ask(stranger, f"{scheme}://{exposure.address}", route, {})
            with httpx.Client(verify=known, timeout=DEADLINE_S, trust_env=False) as friend:
                assert walk_http(exposure, triton, friend, f"https://{exposure.address}") == []


def test_without_an_address_of_its_own_an_app_listens_where_http_does():
    with serving("default") as triton:
        assert triton._config.http_address == LOCALHOST
        apps = [each.address for each in triton.exposure() if each.name == "app"]
        assert apps == [f"{LOCALHOST}:{triton._rest.port}", f"{LOCALHOST}:{triton._config.http_port}"]
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://127.0.0.2:{triton._rest.port}/health/live", trust_env=False, timeout=DEADLINE_S)


def test_metrics_that_the_servers_own_endpoint_cannot_protect_are_refused():
    with local_config(http_frontend="triton") as config, pytest.raises(PyTritonValidationError, match="metrics"):
        Triton(config=config, security_config=TritonSecurityConfig(SERVERS, ["metrics"]))


def test_the_models_of_an_app_with_keys_are_called_by_its_own_program_and_with_the_servers_token():
    headers = {"Authorization": f"Bearer {KEY}"}
    with serving("keys") as triton:
        url = f"http://{LOCALHOST}:{triton._rest.port}"
        assert httpx.post(f"{url}/predict/shout", json={"text": "a"}, headers=headers, timeout=DEADLINE_S).json() == {
            "result": "A"
        }
        token = {"Authorization": f"Bearer {SERVERS}"}
        assert httpx.post(f"{url}/predict/shout", json={"text": "a"}, headers=token, timeout=DEADLINE_S).json() == {
            "result": "A"
        }
        request = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]}]}
        infer = f"http://{LOCALHOST}:{triton._config.http_port}/v2/models/shout/infer"
        assert httpx.post(infer, json=request, timeout=DEADLINE_S).status_code == 403
        assert httpx.post(infer, json=request, headers=token, timeout=DEADLINE_S).status_code == 200


@pytest.mark.parametrize(("hosts", "status"), [(None, 403), (["models.example"], 200), (["*"], 200)])
def test_a_page_behind_a_proxy_calls_a_server_for_this_machine_under_a_name_that_is_given(hosts, status):
    request = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]}]}
    headers = {"Host": "models.example", "Origin": "https://models.example"}
    with serving("open", http_hosts=hosts) as triton, httpx.Client(timeout=DEADLINE_S, trust_env=False) as client:
        base = f"http://{LOCALHOST}:{triton._config.http_port}"
        assert client.post(f"{base}/v2/models/shout/infer", json=request, headers=headers).status_code == status
        assert client.post(f"{base}/predict/shout", json={"text": "a"}, headers=headers).status_code == status
        assert client.get(base, headers=headers).status_code == status


@pytest.mark.parametrize(("hosts", "status"), [(None, 200), (["models.example"], 403)])
def test_a_server_for_all_addresses_asks_pages_for_a_known_name_once_there_are_names(hosts, status):
    request = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]}]}
    bodies = {"v2/models/shout/infer": request, "predict/shout": {"text": "a"}, "v1/models/shout:predict": INSTANCES}
    with (
        serving("open", http_hosts=hosts, is_local=False) as triton,
        httpx.Client(timeout=DEADLINE_S, trust_env=False) as client,
    ):
        port = triton._config.http_port
        for path, body in bodies.items():
            url = f"http://{LOCALHOST}:{port}/{path}"
            for name, expected in (("evil.example", status), ("models.example", 200), (LOCALHOST, 200)):
                headers = {"Host": f"{name}:{port}", "Origin": f"http://{name}:{port}"}
                assert client.post(url, json=body, headers=headers).status_code == expected, (path, name)
            assert client.post(url, json=body, headers={"Host": "evil.example"}).status_code == 200  # of no page


def test_a_page_of_another_site_runs_nothing_at_any_port():
    request = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]}]}
    with serving("open") as triton, httpx.Client(timeout=DEADLINE_S, trust_env=False) as client:
        for port in (triton._rest.port, triton._config.http_port):
            base = f"http://{LOCALHOST}:{port}"
            calls = {"/predict/shout": {"text": "a"}, "/v1/models/shout:predict": INSTANCES}
            if port == triton._config.http_port:
                calls["/v2/models/shout/infer"] = request
            for path, body in calls.items():
                statuses = {}
                for host, origin in (
                    (None, None),
                    (None, base),
                    (None, "http://evil.example"),
                    (None, "null"),
                    (f"evil.example:{port}", f"http://evil.example:{port}"),
                ):
                    headers = {"Host": host, "Origin": origin}
                    given = {name: value for name, value in headers.items() if value is not None}
                    given["Content-Type"] = "text/plain"  # of which browsers do not ask before they send it
                    response = client.post(base + path, json=body, headers=given)
                    statuses[host, origin] = response.status_code
                assert [*statuses.values()] == [200, 200, 403, 403, 403], (path, statuses)
            assert client.get(base, headers={"Host": "evil.example"}).status_code in (403, 404)
            assert client.post(f"{base}/mcp", headers={"Host": "evil.example"}).status_code == 403
