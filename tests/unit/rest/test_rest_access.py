"""What the routes of the application ask for, and whose pages may call them, without a server behind it."""

import asyncio
import hashlib

import httpx
import pytest

from pytriton.rest import ApiKey, RestConfig, create_app
from pytriton.security import APPLICATION_ROUTES, DEFAULT_PROTECTED_ENDPOINTS, ENDPOINT_GROUPS, TRITON_ACCESS_HEADER
from pytriton.server.access import Rule
from pytriton.server.endpoints import ServerEndpoints

SERVERS, APPS, KEY, OTHER = "token-of-the-server", "token-of-the-app", "key-of-a-team", "value-of-a-rule"
KEYS = [ApiKey(name="team", sha256=hashlib.sha256(KEY.encode()).hexdigest(), models=["mine-*"])]
NOWHERE = "http://127.0.0.1:9"
REFUSED = 401
GROUPS = sorted({route.group for route in APPLICATION_ROUTES.values() if route.group is not None})


def rule(*groups, header=TRITON_ACCESS_HEADER, value=SERVERS):
    return Rule(groups, header, value)


def app_of(*rules, **options):
    return create_app(ServerEndpoints(http=NOWHERE, rules=rules), RestConfig(mcp=True, **options))


def request(app, method, path, headers=None, base="http://127.0.0.1:8080"):
    async def run():
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=base) as client:
            # As it is written: httpx would remove dots.
            url = httpx.URL(base).copy_with(raw_path=path.encode())
            async with client.stream(method, url, headers=headers) as response:
                return response

    return asyncio.run(run())


def is_open(app, path, headers=None):
    """Whether a request comes to its route: the server behind it is not there."""
    path = path.replace("{model}", "m").replace("{version}", "1").replace("{name}", "app.js")
    return request(app, "POST", path, headers).status_code != REFUSED


def test_every_route_of_the_application_is_in_the_table_and_the_other_way_round():
    app = app_of()
    assert {route.path: route.group for route in app.routes} == {
        path: route.group for path, route in APPLICATION_ROUTES.items()
    }
    assert {*GROUPS} < ENDPOINT_GROUPS


@pytest.mark.parametrize("closed", [[], DEFAULT_PROTECTED_ENDPOINTS, ["inference"], ["metadata", "health"]])
def test_a_group_that_the_server_protects_asks_for_its_token_in_the_application(closed):
    app = app_of(*([rule(*closed)] if closed else []))
    for path, (group, _) in APPLICATION_ROUTES.items():
        if path in ("/pages/log", "/pages/commands"):  # which are for operators in any case
            continue
        assert is_open(app, path) == (group not in closed), path
        assert is_open(app, path, {"Authorization": f"Bearer {SERVERS}"})
        assert is_open(app, path, {"Triton-Access-Token": SERVERS})
        wrong = {"Authorization": f"Bearer {SERVERS}x", "Triton-Access-Token": SERVERS[:-1]}
        assert is_open(app, path, wrong) == (group not in closed), path


@pytest.mark.parametrize("path", APPLICATION_ROUTES)
def test_the_token_of_the_app_opens_what_it_asks_for(path):
    app = app_of(rule(*DEFAULT_PROTECTED_ENDPOINTS, "inference"), access_token=APPS)
    group = APPLICATION_ROUTES[path].group
    assert is_open(app, path) == (group in (None, "health"))
    assert is_open(app, path, {"Authorization": f"Bearer {SERVERS}"})
    if path not in ("/pages/log", "/pages/commands"):
        assert is_open(app, path, {"Authorization": f"Bearer {APPS}"})
        assert is_open(app, path, {"triton-access-token": APPS})


def test_a_key_opens_models_and_their_lists_and_not_the_statistics_that_are_protected():
    headers = {"Authorization": f"Bearer {KEY}"}
    app = app_of(rule(*DEFAULT_PROTECTED_ENDPOINTS, "inference"), api_keys=KEYS)
    for path, (group, _) in APPLICATION_ROUTES.items():
        assert is_open(app, path, headers) == (group in (None, "health", "inference", "metadata")), path
        assert is_open(app, path) == (group in (None, "health")), path
    assert is_open(app_of(api_keys=KEYS), "/metrics", headers)
    assert not is_open(app_of(api_keys=KEYS), "/metrics")


def test_a_key_that_may_not_call_all_models_does_not_see_the_figures_of_all():
    headers, every = {"Authorization": f"Bearer {KEY}"}, [ApiKey(name="all", sha256=KEYS[0].sha256)]
    for path in [path for path, (group, _) in APPLICATION_ROUTES.items() if group == "statistics"]:
        method = "GET" if path == "/metrics" else "HEAD"
        assert request(app_of(api_keys=KEYS), method, path, headers).status_code == 403
        assert request(app_of(api_keys=every), "PUT", path, headers).status_code == 405


def test_a_rule_of_the_users_own_asks_for_its_header_and_the_servers_token_opens_it_too():
    app = app_of(rule("inference", header="X-Team", value=OTHER), rule("statistics"))
    assert not is_open(app, "/predict/m", {"Authorization": f"Bearer {OTHER}"})
    assert is_open(app, "/predict/m", {"x-team": OTHER})
    assert not is_open(app, "/metrics", {"x-team": OTHER})
    assert is_open(app, "/predict/m", {"triton-access-token": SERVERS})
    message = request(app, "POST", "/predict/m").headers
    assert message["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "path",
    [
        "/predict/m/", "//predict/m", "/predict//m", "/%70redict/m", "/predict/%6D", "/predict/m/1/", "/./predict/m",
        "/health/../predict/m", "/predict/m?x=1", "/predict/m%2F1", "/v1/models/m%3Apredict", "/v1/models/a/b:predict",
        "/pages/static/../../predict/m", "/PREDICT/m", "/predict/m;x", "/pages/static/%2e%2e/about", "/metrics/",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_no_spelling_of_a_path_and_no_method_leads_around_the_token(path, method):
    app = app_of(rule(*GROUPS))
    assert request(app, method, path).status_code in (307, 401, 404)
    below = app_of(rule(*GROUPS), root_path="/models")
    for each in (path, f"/models{path}"):
        assert request(below, method, each).status_code in (307, 401, 404)


def test_a_route_without_a_group_is_refused_when_the_application_is_made(monkeypatch):
    monkeypatch.delitem(APPLICATION_ROUTES, "/metrics")
    with pytest.raises(KeyError, match="/metrics"):
        app_of()


@pytest.mark.parametrize(("path", "location"), [("/metrics/?a=b", "/metrics?a=b"), ("/docs/", "/docs")])
def test_a_redirect_leads_to_the_same_server_whatever_the_host_is_called(path, location):
    response = request(app_of(), "GET", path, {"Host": "evil.example"})
    assert (response.status_code, response.headers["location"]) == (307, location)


def test_a_redirect_leads_to_no_other_host():
    assert request(app_of(), "GET", "//evil.example/").status_code == 404
    app = app_of(root_path="/models")
    assert request(app, "GET", "/models").headers["location"] == "/models/"


RUNNING = ("/predict/m", "/v1/models/m:predict", "/v1/chat/completions", "/v1/embeddings", "/mcp", "/pages/commands")
FOREIGN = {"Origin": "https://evil.example"}


@pytest.mark.parametrize("path", RUNNING)
@pytest.mark.parametrize(
    ("headers", "options", "may_call"),
    [
        ({}, {}, True),
        (FOREIGN, {}, False),
        ({"Origin": "null"}, {}, False),
        ({"Origin": "http://127.0.0.1:8080"}, {}, True),
        ({"Origin": "http://127.0.0.1:9"}, {}, False),
        ({"Origin": "http://127.0.0.1:8080.evil.example"}, {}, False),
        ({"Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-site"}, {}, False),
        ({"Origin": "https://models.example", "Sec-Fetch-Site": "same-origin"}, {}, True),  # a proxy changes the host
        ({"Sec-Fetch-Site": "cross-site"}, {}, False),
        ({"Sec-Fetch-Site": "none"}, {}, True),
        (FOREIGN, {"cors": ["https://evil.example"]}, True),
        (FOREIGN, {"cors": ["https://other.example"]}, False),
        (FOREIGN, {"cors": ["*"]}, True),
    ],
)
def test_a_page_of_another_site_runs_nothing(path, headers, options, may_call):
    app = app_of(rule("trace"), **options)  # with a token, without which commands are refused
    assert (request(app, "POST", path, headers).status_code != 403) == may_call


NAMED = {"hosts": ["models.example"]}


@pytest.mark.parametrize(
    ("host", "origin", "options", "may_call"),
    [
        ("evil.example", "http://evil.example", {}, True),
        ("evil.example", "http://evil.example", NAMED, False),
        ("models.example", "http://models.example", NAMED, True),
        ("127.0.0.1", "http://127.0.0.1", NAMED, True),
        ("evil.example", None, NAMED, True),  # of no page
        ("other.example", "https://shop.example", {**NAMED, "cors": ["https://shop.example"]}, True),
    ],
)
def test_own_pages_call_models_under_a_known_name_once_there_are_names(host, origin, options, may_call):
    headers = {"Host": host} | ({} if origin is None else {"Origin": origin})
    assert (request(app_of(**options), "POST", "/predict/m", headers).status_code != 403) == may_call


@pytest.mark.parametrize("path", ["/", "/mcp", "/docs", "/openapi.json", "/pages/models", "/pages/static/app.js"])
@pytest.mark.parametrize(
    ("host", "options", "is_known"),
    [
        ("127.0.0.1:8080", {}, True),
        ("[::1]:8080", {}, True),
        ("192.0.2.7", {}, True),
        ("localhost", {}, True),
        ("LOCALHOST:1", {}, True),
        ("evil.example:8080", {}, False),
        ("127.0.0.1.evil.example", {}, False),
        ("localhost.evil.example", {}, False),
        ("models.example", {"hosts": ["models.example"]}, True),
        ("models.example", {"hosts": ["*"]}, True),
        ("app.example", {"address": "app.example"}, True),
    ],
)
def test_pages_are_reached_by_known_names_alone(path, host, options, is_known):
    app = app_of(**options)
    assert (request(app, "GET", path, {"Host": host}).status_code != 403) == is_known
    assert request(app, "GET", "/health/live", {"Host": host}).status_code == 200


@pytest.mark.parametrize(("address", "status"), [("0.0.0.0", 503), ("127.0.0.1", 403), ("::1", 403)])
def test_an_app_for_this_machine_alone_has_known_names_on_all_routes_but_health(address, status):
    app = app_of(address=address)
    assert request(app, "POST", "/predict/m", {"Host": "evil.example"}).status_code == status
    assert request(app, "GET", "/health/live", {"Host": "evil.example"}).status_code == 200


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_mcp_has_no_stream_that_a_client_could_hold_for_ever(method):
    answer = request(app_of(), method, "/mcp")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("size", [10, 60_000])
def test_names_that_clients_make_up_are_no_labels_of_metrics(size):
    app = app_of()
    for number in range(3):
        name = f"{number}" + "a" * size
        assert request(app, "POST", f"/predict/{name}").status_code == 503
        assert request(app, "PUT", f"/predict/{name}").status_code == 405
    text = asyncio.run(_metrics(app))
    assert "/predict/{model}" in text
    assert "aaaa" not in text


async def _metrics(app):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8080") as client:
        return (await client.get("/metrics")).text
