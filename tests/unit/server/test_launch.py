"""From a configuration to a command line and to addresses, and what is refused before a server starts."""

import logging
import socket
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import pytest

from pytriton.config import NATIVE_HTTP_OPTIONS, NO_FLAGS, TritonConfig
from pytriton.exceptions import PyTritonServerError, PyTritonValidationError
from pytriton.server import launch
from pytriton.server.installation import Installation
from pytriton.server.launch import (
    check_cloud_endpoints,
    check_ports,
    check_ports_differ,
    command_line,
    endpoints,
    flags,
    has_gpu_driver,
    has_one_port,
    is_for_this_machine,
    local_url,
    warn_unchecked_clouds,
    with_vertex_ai_settings,
)
from tests.server.ports import reserved_ports

HOME = Installation(Path("/opt/triton server"))
STORE, OVERLAY = Path("/tmp/my store"), Path("/tmp/over lay")


@pytest.fixture
def ports():
    with reserved_ports(3) as ports:
        yield ports


def config_of(ports, address="127.0.0.1", **fields):
    http, grpc, metrics = ports
    addresses = {"http_address": address, "grpc_address": address, "metrics_address": address}
    return TritonConfig(**{"http_port": http, "grpc_port": grpc, "metrics_port": metrics, **addresses, **fields})


def arguments_of(**fields):
    return command_line(HOME, TritonConfig(**fields), STORE, OVERLAY, "prefix-")


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_the_command_line_names_our_repository_backends_and_shared_memory():
    executable, *arguments = arguments_of()
    assert executable == "/opt/triton server/bin/tritonserver"
    for argument in (
        "--model-repository=/tmp/my store",
        "--model-control-mode=explicit",
        "--backend-directory=/tmp/over lay/backends",
        "--backend-config=python,shm-region-prefix-name=prefix-",
        "--cache-directory=/opt/triton server/caches",
        "--disable-auto-complete-config",
    ):
        assert argument in arguments


def test_the_users_options_come_last_each_as_one_argument():
    arguments = arguments_of(log_file="/log/a b", http_header_forward_pattern="x-.* y", cache_config=["a,b=1"])
    assert arguments[-3:] == ["--log-file=/log/a b", "--http-header-forward-pattern=x-.* y", "--cache-config=a,b=1"]


def test_a_repository_of_the_users_is_served_beside_ours_and_completed_by_the_server():
    arguments = arguments_of(model_repository="/my models")
    assert [argument for argument in arguments if argument.startswith("--model-repository")] == [
        "--model-repository=/tmp/my store",
        "--model-repository=/my models",
    ]
    assert "--disable-auto-complete-config" not in arguments


def test_a_cache_directory_of_the_users_replaces_ours():
    arguments = arguments_of(cache_directory="/caches")
    assert [argument for argument in arguments if "cache-directory" in argument] == ["--cache-directory=/caches"]


@pytest.mark.parametrize(("driver", "told"), [(False, ["--allow-gpu-metrics=false"]), (True, [])])
def test_gpus_are_not_looked_for_where_there_is_no_driver(monkeypatch, driver, told):
    monkeypatch.setattr(launch, "has_gpu_driver", lambda: driver)
    assert gpu_metrics(arguments_of()) == told
    assert gpu_metrics(arguments_of(allow_gpu_metrics=True)) == ["--allow-gpu-metrics=True"]


def gpu_metrics(arguments):
    return [argument for argument in arguments if "gpu-metrics" in argument]


@pytest.mark.parametrize("device", ["nvidiactl", "dxg", "nvmap"])
def test_a_driver_is_known_by_its_device(monkeypatch, device):
    monkeypatch.setattr(Path, "exists", lambda path: str(path) == f"/dev/{device}")
    assert has_gpu_driver()
    monkeypatch.setattr(Path, "exists", lambda path: False)
    assert not has_gpu_driver()


def test_the_endpoints_that_the_server_opens_by_default():
    assert endpoints(TritonConfig()) == {
        "http_port": ("0.0.0.0", 8000),
        "grpc_port": ("0.0.0.0", 8001),
        "metrics_port": ("0.0.0.0", 8002),
    }


def test_metrics_are_where_http_is_unless_told_otherwise():
    assert endpoints(TritonConfig(http_address="10.0.0.1"))["metrics_port"] == ("10.0.0.1", 8002)
    config = TritonConfig(http_address="10.0.0.1", metrics_address="10.0.0.2", metrics_port=5)
    assert endpoints(config)["metrics_port"] == ("10.0.0.2", 5)


def test_endpoints_are_turned_off_and_on():
    off = TritonConfig(allow_http=False, allow_metrics=False)
    assert list(endpoints(off)) == ["grpc_port"]
    assert list(endpoints(TritonConfig(allow_grpc=False))) == ["http_port", "metrics_port"]
    on = TritonConfig(allow_sagemaker=True, sagemaker_port=5, allow_vertex_ai=True)
    assert endpoints(on)["sagemaker_port"] == ("0.0.0.0", 5)
    assert endpoints(on)["vertex_ai_port"] == ("0.0.0.0", 8080)


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({}, "http://127.0.0.1:8000"),
        ({"http_port": 9000, "http_address": "0.0.0.0"}, "http://127.0.0.1:9000"),
        ({"http_address": "10.1.2.3"}, "http://10.1.2.3:8000"),
        ({"http_address": "::1"}, "http://[::1]:8000"),
        ({"http_address": "::"}, "http://[::]:8000"),
        ({"http_address": "my-host"}, "http://my-host:8000"),
        ({"allow_http": False}, "grpc://127.0.0.1:8001"),
        ({"allow_http": False, "grpc_port": 7, "grpc_address": "::1"}, "grpc://[::1]:7"),
    ],
)
def test_the_local_url_reaches_http_or_else_grpc(fields, url):
    assert local_url(TritonConfig(**fields)) == url


def test_free_ports_pass_and_are_left_free(ports):
    for _ in range(2):
        check_ports(config_of(ports))
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.parametrize(("index", "name"), [(0, "http"), (1, "grpc"), (2, "metrics")])
def test_a_port_in_use_is_named_with_its_field(ports, index, name):
    with socket.create_server(("127.0.0.1", ports[index])), pytest.raises(PyTritonServerError) as raised:
        check_ports(config_of(ports))
    assert str(raised.value) == (
        f"the {name} endpoint cannot listen on 127.0.0.1:{ports[index]}: Address already in use. Choose another "
        f"{name}_port in TritonConfig, or turn the endpoint off with allow_{name}=False"
    )


def test_a_port_in_use_does_not_matter_for_an_endpoint_that_is_off(ports):
    with socket.create_server(("127.0.0.1", ports[1])):
        check_ports(config_of(ports, allow_grpc=False))


def test_a_port_in_use_on_another_address_does_not_matter(ports):
    with socket.create_server(("127.0.0.2", ports[0])):
        check_ports(config_of(ports))


def test_a_port_whose_last_connection_has_just_ended_is_free(ports):
    with (
        socket.create_server(("127.0.0.1", ports[0])) as server,
        socket.create_connection(server.getsockname()),
        closing(server.accept()[0]) as ours,
    ):
        ours.shutdown(socket.SHUT_RDWR)  # the side that ends first keeps the port for a minute
    check_ports(config_of(ports))


def test_two_endpoints_on_one_port_are_refused(ports):
    message = f"grpc_port and http_port are both {ports[0]}; give each its own port, or both one address"
    with pytest.raises(PyTritonServerError, match=message):
        check_ports(config_of([ports[0], ports[0], ports[2]], grpc_address="127.0.0.2"))
    with pytest.raises(PyTritonServerError, match=f"metrics_port and grpc_port are both {ports[1]}; give each its own"):
        check_ports(config_of([ports[0], ports[1], ports[1]]))


def test_http_and_grpc_may_have_one_port(ports):
    config = config_of([ports[0], ports[0], ports[2]])
    check_ports(config)
    assert has_one_port(config)
    assert not has_one_port(config_of(ports))
    assert has_one_port(config_of(ports, http_address="unix:/s", grpc_address="unix:/s"))
    assert not has_one_port(config_of([ports[0], ports[0], ports[2]], allow_grpc=False))


def test_an_address_of_another_machine_is_refused(ports):
    with pytest.raises(PyTritonServerError, match=r"http endpoint cannot listen on 192\.0\.2\.1"):
        check_ports(config_of(ports, http_address="192.0.2.1"))


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_an_ipv6_address_is_checked_as_such(ports):
    config = config_of(ports, http_address="::1")
    check_ports(config)
    with (
        socket.create_server(("::1", ports[0]), family=socket.AF_INET6),
        pytest.raises(PyTritonServerError, match=f"cannot listen on ::1:{ports[0]}"),
    ):
        check_ports(config)


ACCEPTED_BY_THE_SERVER = """
    --id --exit-timeout-secs --log-verbose --log-info --log-warning --log-error --log-format --log-file
    --model-store --model-repository --exit-on-error --disable-auto-complete-config --strict-readiness
    --model-control-mode --repository-poll-secs --load-model --model-config-name --model-load-thread-count
    --model-load-retry-count --model-namespacing --enable-peer-access --allow-http --http-address --http-port
    --reuse-http-port --http-header-forward-pattern --http-thread-count --http-restricted-api --allow-grpc
    --grpc-address --grpc-port --reuse-grpc-port --grpc-header-forward-pattern --grpc-infer-allocation-pool-size
    --grpc-use-ssl --grpc-use-ssl-mutual --grpc-server-cert --grpc-server-key --grpc-root-cert
    --grpc-infer-response-compression-level --grpc-keepalive-time --grpc-keepalive-timeout
    --grpc-keepalive-permit-without-calls --grpc-http2-max-pings-without-data
    --grpc-http2-min-recv-ping-interval-without-data --grpc-http2-max-ping-strikes --grpc-max-connection-age
    --grpc-max-connection-age-grace --grpc-restricted-protocol --allow-sagemaker --sagemaker-port
    --sagemaker-safe-port-range --sagemaker-thread-count --allow-vertex-ai --vertex-ai-port
    --vertex-ai-thread-count --vertex-ai-default-model --allow-metrics --allow-gpu-metrics --allow-cpu-metrics
    --metrics-address --metrics-port --metrics-interval-ms --metrics-config --trace-config --backend-directory
    --backend-config --repoagent-directory --cache-config --cache-directory --rate-limit --rate-limit-resource
    --pinned-memory-pool-byte-size --cuda-memory-pool-byte-size --cuda-virtual-address-size
    --min-supported-compute-capability --buffer-manager-thread-count --host-policy --model-load-gpu-limit
    --strict-model-config --response-cache-byte-size --trace-file --trace-level --trace-rate --trace-count
    --trace-log-frequency
"""
"""Printed by ``tritonserver --help``, version 2.51."""


def test_every_field_is_a_flag_that_the_server_accepts_but_for_those_of_the_edge():
    everything = {option.name: "1" for option in fields(TritonConfig) if option.name not in NO_FLAGS}
    everything["grpc_infer_response_compression_level"] = "low"
    assert {"http_frontend", "grpc_frontend", *NATIVE_HTTP_OPTIONS} == NO_FLAGS
    assert flags(TritonConfig(http_frontend="native", **dict.fromkeys(NATIVE_HTTP_OPTIONS, "1"))) == []
    names = [argument.partition("=")[0] for argument in flags(TritonConfig(**everything))]
    assert len(names) == len(everything)
    assert set(names) <= set(ACCEPTED_BY_THE_SERVER.split())


def test_no_field_set_gives_no_flag():
    assert flags(TritonConfig()) == []


def test_booleans_are_written_as_words_and_zero_is_not_left_out():
    config = TritonConfig(allow_http=True, allow_metrics=False, log_verbose=0)
    assert flags(config) == ["--log-verbose=0", "--allow-http=True", "--allow-metrics=False"]


def test_a_list_repeats_its_flag():
    config = TritonConfig(cache_config=["local,size=1", "redis,host=h"], metrics_config=[])
    assert flags(config) == ["--cache-config=local,size=1", "--cache-config=redis,host=h"]


def test_values_with_spaces_and_equal_signs_stay_one_argument():
    config = TritonConfig(log_file=Path("/my logs/a=b.log"), http_header_forward_pattern="(a b|c).*")
    assert flags(config) == ["--log-file=/my logs/a=b.log", "--http-header-forward-pattern=(a b|c).*"]


ROUTES = {"AIP_PREDICT_ROUTE": "/predict", "AIP_HEALTH_ROUTE": "/health"}
CONTAINER = {"AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": "9090", **ROUTES}
VERTEX_AI = TritonConfig(allow_vertex_ai=True)


def test_elsewhere_a_configuration_stays_as_it_is():
    config = TritonConfig(http_port=9000)
    assert with_vertex_ai_settings(config, {}) == config
    assert with_vertex_ai_settings(config, {"AIP_MODE": "TRAINING"}) == config


def test_in_a_container_its_endpoint_is_open_and_http_to_the_machine_alone():
    config = with_vertex_ai_settings(TritonConfig(), CONTAINER)
    assert (config.allow_vertex_ai, config.vertex_ai_port) == (True, 9090)
    assert (config.allow_http, config.http_address) == (True, "127.0.0.1")
    assert config.allow_grpc is False


def test_in_a_container_without_http_it_is_grpc_that_is_open():
    config = with_vertex_ai_settings(TritonConfig(allow_http=False), CONTAINER)
    assert (config.allow_http, config.allow_grpc, config.grpc_address) == (False, True, "127.0.0.1")


def test_in_a_container_what_the_user_says_wins():
    chosen = TritonConfig(
        allow_vertex_ai=False, vertex_ai_port=1, allow_http=True, allow_grpc=True, http_address="0.0.0.0"
    )
    assert with_vertex_ai_settings(chosen, CONTAINER) == chosen


def test_a_port_that_is_no_number_is_refused():
    with pytest.raises(PyTritonValidationError, match="AIP_HTTP_PORT in the environment is 'http'"):
        with_vertex_ai_settings(TritonConfig(), {"AIP_HTTP_PORT": "http"})


@pytest.mark.parametrize(
    ("config", "models", "environment"),
    [
        (TritonConfig(), [], {}),
        (VERTEX_AI, ["m"], ROUTES),
        (TritonConfig(allow_vertex_ai=True, vertex_ai_default_model="m"), ["n", "m"], ROUTES),
    ],
)
def test_what_the_server_can_open_passes(config, models, environment):
    check_cloud_endpoints(config, models, environment)


@pytest.mark.parametrize("route", ROUTES)
def test_a_missing_route_is_named_with_an_example(route):
    with pytest.raises(PyTritonValidationError, match=f"such as {route}={ROUTES[route]};"):
        check_cloud_endpoints(VERTEX_AI, ["m"], {**ROUTES, route: ""})


@pytest.mark.parametrize("models", [[], ["m", "n"]])
def test_a_default_model_has_to_be_named_unless_there_is_but_one(models):
    with pytest.raises(PyTritonValidationError, match=f"loads {len(models)} models .*vertex_ai_default_model"):
        check_cloud_endpoints(VERTEX_AI, models, ROUTES)


def test_sagemaker_without_a_model_is_a_warning(caplog):
    check_cloud_endpoints(TritonConfig(allow_sagemaker=True), [], {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "m"})
    assert not caplog.records
    check_cloud_endpoints(TritonConfig(allow_sagemaker=True), [], {})
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME" in caplog.text


@pytest.mark.parametrize("address", ["127.0.0.1", "127.3.2.1", "::1", "localhost", "unix:/run/pytriton.sock"])
def test_loopback_addresses_and_unix_sockets_are_for_this_machine_alone(address):
    assert is_for_this_machine(address)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_other_addresses_are_for_other_machines_too(address):
    assert not is_for_this_machine(address)


def test_a_clouds_port_that_checks_no_token_is_a_warning(caplog):
    clouds = TritonConfig(allow_sagemaker=True, allow_vertex_ai=True)
    warn_unchecked_clouds(clouds, [])
    warn_unchecked_clouds(TritonConfig(), ["logging"])
    assert not caplog.records
    warn_unchecked_clouds(clouds, ["trace", "logging"])
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "Vertex AI's port leads to logging, trace without the access token" in caplog.text


def test_a_unix_socket_as_the_address_of_http_has_no_port(tmp_path):
    config = TritonConfig(http_address="unix:/run/x.sock", http_port=8001)
    assert local_url(config) == "http+unix:///run/x.sock"
    assert endpoints(config)["metrics_port"] == ("127.0.0.1", 8002)
    check_ports_differ(config, "RestConfig.port", 8001 + 10)


def test_an_encrypted_endpoint_has_a_url_of_https():
    assert local_url(TritonConfig(http_use_ssl=True, http_address="127.0.0.1")) == "https://127.0.0.1:8000"
