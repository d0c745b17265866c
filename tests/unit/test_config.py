import logging
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytriton.config import ENVIRONMENT_PREFIX, NATIVE_HTTP_OPTIONS, TritonConfig, merge_configs
from pytriton.exceptions import PyTritonValidationError

FIELDS = """
    model_repository id log_verbose log_file exit_timeout_secs exit_on_error strict_readiness
    allow_http http_address http_port http_thread_count http_header_forward_pattern http_restricted_api
    allow_grpc grpc_address grpc_port grpc_header_forward_pattern grpc_infer_allocation_pool_size
    grpc_use_ssl grpc_use_ssl_mutual grpc_server_cert grpc_server_key grpc_root_cert
    grpc_infer_response_compression_level grpc_keepalive_time grpc_keepalive_timeout
    grpc_keepalive_permit_without_calls grpc_http2_max_pings_without_data
    grpc_http2_min_recv_ping_interval_without_data grpc_http2_max_ping_strikes grpc_restricted_protocol
    allow_metrics allow_gpu_metrics allow_cpu_metrics metrics_interval_ms metrics_port metrics_address
    allow_sagemaker sagemaker_port sagemaker_safe_port_range sagemaker_thread_count
    allow_vertex_ai vertex_ai_port vertex_ai_thread_count vertex_ai_default_model
    metrics_config trace_config cache_config cache_directory
    rate_limit rate_limit_resource host_policy model_load_gpu_limit buffer_manager_thread_count
"""


def from_env(**variables: str) -> TritonConfig:
    return TritonConfig.from_env({ENVIRONMENT_PREFIX + name: text for name, text in variables.items()})


def test_every_field_of_the_api_exists_and_is_none_by_default():
    edge = {"http_frontend", "grpc_frontend", *NATIVE_HTTP_OPTIONS}
    fields = TritonConfig().to_dict()
    assert {name: fields.pop(name) for name in edge} == dict.fromkeys(edge)
    assert fields == dict.fromkeys(FIELDS.split())


@pytest.mark.parametrize("value", ["Native", "evhtp", "", 1])
def test_there_are_two_http_endpoints(value):
    assert TritonConfig(http_frontend="native").http_frontend == "native"
    with pytest.raises(PyTritonValidationError, match="expected one of 'native', 'triton'"):
        TritonConfig(http_frontend=value)


def test_a_edge_of_grpc_is_chosen_by_name():
    assert TritonConfig(grpc_frontend="edge").grpc_frontend == "edge"
    with pytest.raises(PyTritonValidationError, match="expected one of 'triton', 'edge'"):
        TritonConfig(grpc_frontend="native")


@pytest.mark.parametrize("name", ["http_max_body_bytes", "http_timeout_s", "http_max_connections"])
def test_a_limit_is_positive(name):
    assert getattr(TritonConfig(**{name: "7"}), name) == 7
    with pytest.raises(PyTritonValidationError, match=f"{name}: expected an integer of at least 1"):
        TritonConfig(**{name: 0})


def test_the_class_documents_every_field():
    attributes = TritonConfig.__doc__.split("Attributes:\n")[1]
    assert re.findall(r"^    (\w+): \S.*\.$", attributes, re.MULTILINE) == list(TritonConfig().to_dict())


def test_positional_and_unknown_arguments_are_type_errors():
    with pytest.raises(TypeError):
        TritonConfig("store")
    with pytest.raises(TypeError):
        TritonConfig(http_prot=8000)


def test_assigned_values_are_converted_and_checked_when_the_configuration_is_used():
    config = TritonConfig(grpc_port=8001)
    config.http_port = "8080"
    merged = merge_configs(config)
    assert (merged.http_port, merged.grpc_port) == (8080, 8001)
    config.http_port = 0
    with pytest.raises(PyTritonValidationError, match="http_port: expected an integer from 1 to 65535, got 0"):
        merge_configs(config)
    assert merged.http_port == 8080


def test_an_assignment_to_no_field_is_warned_of(caplog):
    config = TritonConfig()
    config.http_prot = 8080
    assert merge_configs(config) == TritonConfig()
    assert "unknown configuration field http_prot=8080 ignored" in caplog.text


@pytest.mark.parametrize(
    ("name", "given_value", "value"),
    [
        ("http_port", "8080", 8080),
        ("http_port", np.int64(8080), 8080),
        ("http_port", 65535, 65535),
        ("exit_timeout_secs", 30.0, 30),
        ("log_verbose", 0, 0),
        ("log_file", "/var/log/a b.log", Path("/var/log/a b.log")),
        ("cache_directory", Path("/opt/caches"), "/opt/caches"),
        ("id", 7, "7"),
        ("allow_metrics", 0, False),
        ("allow_metrics", "On", True),
        ("cache_config", ("local,size=1",), ["local,size=1"]),
        ("cache_config", "local,size=1", ["local,size=1"]),
        ("metrics_config", [], []),
    ],
)
def test_values_of_plain_meaning_are_converted(name, given_value, value):
    converted = getattr(TritonConfig(**{name: given_value}), name)
    assert converted == value
    assert type(converted) is type(value) or isinstance(value, Path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("http_port", -1),
        ("http_port", 0),
        ("http_port", 65536),
        ("http_port", True),
        ("http_port", "http"),
        ("http_port", [8000]),
        ("http_thread_count", -1),
        ("http_thread_count", 1.5),
        ("http_thread_count", float("inf")),
        ("allow_metrics", 2),
        ("allow_metrics", "maybe"),
        ("allow_metrics", []),
        ("http_address", True),
        ("http_address", b"0.0.0.0"),
        ("http_address", ["0.0.0.0"]),
        ("vertex_ai_default_model", "a\0b"),
        ("log_file", 5),
        ("log_file", ""),
        ("log_file", b"log"),
        ("log_file", "a\0b"),
        ("cache_config", {"local": 1}),
        ("cache_config", [None]),
        ("cache_config", 5),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(name, value):
    with pytest.raises(PyTritonValidationError, match=rf"^{name}: expected .*got {re.escape(repr(value))}"):
        TritonConfig(**{name: value})


def test_http_and_grpc_cannot_both_be_off():
    with pytest.raises(PyTritonValidationError, match="allow_http and allow_grpc"):
        TritonConfig(allow_http=False, allow_grpc="no")
    assert TritonConfig(allow_http=False).allow_grpc is None


def test_to_dict_and_from_dict_are_inverse_and_copy_lists():
    items = ["local,size=1"]
    config = TritonConfig(log_file="a.log", http_port=1, cache_config=items, allow_http=False)
    again = TritonConfig.from_dict(config.to_dict())
    assert again == config
    items.append("redis,host=h")
    config.to_dict()["cache_config"].append("x")
    assert config.cache_config == again.cache_config == ["local,size=1"]
    assert again.cache_config is not config.cache_config


def test_from_dict_converts_values_with_the_type_of_the_field():
    config = TritonConfig.from_dict({"http_port": "81", "allow_grpc": "false", "log_file": "a", "id": None})
    assert config == TritonConfig(http_port=81, allow_grpc=False, log_file=Path("a"))


def test_from_dict_ignores_an_unknown_key_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING, logger="pytriton"):
        assert TritonConfig.from_dict({"http_prot": 81}) == TritonConfig()
    assert "http_prot=81" in caplog.text
    assert "http_port" in caplog.text


@pytest.mark.parametrize("text", ["true", "1", "yes", "on", "TRUE", "Yes", " on "])
def test_the_environment_turns_booleans_on(text):
    assert from_env(ALLOW_METRICS=text).allow_metrics is True


@pytest.mark.parametrize("text", ["false", "0", "no", "off", "False", "OFF"])
def test_the_environment_turns_booleans_off(text):
    assert from_env(ALLOW_METRICS=text).allow_metrics is False


def test_the_environment_sets_numbers_texts_and_paths():
    config = from_env(GRPC_PORT="45436", id="here", GRPC_SERVER_KEY="/a b/key.pem")
    assert config == TritonConfig(grpc_port=45436, id="here", grpc_server_key=Path("/a b/key.pem"))


def test_the_environment_of_the_process_is_read_by_default(monkeypatch):
    monkeypatch.setenv("PYTRITON_TRITON_CONFIG_HTTP_PORT", "45437")
    assert TritonConfig.from_env().http_port == 45437


def test_an_empty_variable_counts_as_not_set():
    assert from_env(GRPC_PORT="", ALLOW_HTTP="", CACHE_CONFIG="", CACHE_CONFIG_0="") == TritonConfig()


def test_other_variables_are_not_looked_at(caplog):
    assert TritonConfig.from_env({"PYTRITON_HOME": "/x", "HTTP_PORT": "1"}) == TritonConfig()
    assert not caplog.records


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [("ALLOW_HTTP", "maybe", "true/1/yes/on or false/0/no/off"), ("HTTP_PORT", "65536", "from 1 to 65535")],
)
def test_a_wrong_variable_is_named_with_what_is_allowed(name, text, allowed):
    with pytest.raises(PyTritonValidationError, match=f"^PYTRITON_TRITON_CONFIG_{name}: .*{allowed}.*'{text}'"):
        from_env(**{name: text})


@pytest.mark.parametrize("name", ["HTTP_PROT", "HTTP_PORT_0", "CACHE_CONFIG_X", "CACHE_CONFIG_"])
def test_an_unknown_variable_is_ignored_with_a_warning(name, caplog):
    with caplog.at_level(logging.WARNING, logger="pytriton"):
        assert from_env(**{name: "1"}) == TritonConfig()
    assert f"PYTRITON_TRITON_CONFIG_{name}='1'" in caplog.text


def test_numbered_variables_make_a_list_in_order_without_gaps():
    config = from_env(TRACE_CONFIG_10="rate=1", TRACE_CONFIG_2="level=TENSORS,TIMESTAMPS", trace_config_0="mode=triton")
    assert config.trace_config == ["mode=triton", "level=TENSORS,TIMESTAMPS", "rate=1"]


@pytest.mark.parametrize(
    ("name", "text", "items"),
    [
        ("metrics_config", "a=1,b=2", ["a=1", "b=2"]),
        ("metrics_config", "a=1, b=2 ,", ["a=1", "b=2"]),
        ("metrics_config", "summary_quantiles=0.5:0.05,0.9:0.01,x=1", ["summary_quantiles=0.5:0.05,0.9:0.01", "x=1"]),
        ("cache_config", "local,size=1048576", ["local,size=1048576"]),
        ("cache_config", "local,size=1,redis,host=h,redis,port=2", ["local,size=1", "redis,host=h", "redis,port=2"]),
        (
            "trace_config",
            "mode=opentelemetry,opentelemetry,url=http://h:1/v1?a,opentelemetry,resource=service.name=me",
            ["mode=opentelemetry", "opentelemetry,url=http://h:1/v1?a", "opentelemetry,resource=service.name=me"],
        ),
        ("cache_config", "one,two", ["one", "two"]),
    ],
)
def test_one_variable_with_commas_makes_a_list(name, text, items):
    assert getattr(from_env(**{name.upper(): text}), name) == items


def test_a_list_that_does_not_begin_with_an_item_is_refused():
    with pytest.raises(PyTritonValidationError, match=r"CACHE_CONFIG: expected 'setting=value'"):
        from_env(CACHE_CONFIG="0.9,size=1")


def test_a_list_given_in_both_forms_is_refused():
    with pytest.raises(PyTritonValidationError, match=r"CACHE_CONFIG and \w+CACHE_CONFIG_3 are both set"):
        from_env(CACHE_CONFIG="local,size=1", CACHE_CONFIG_3="redis,host=h")


names = st.from_regex(r"[a-z][a-z_-]{0,8}", fullmatch=True)
values = st.from_regex(r"[A-Za-z0-9./:_-]{0,12}", fullmatch=True)
settings = st.builds("{}={}".format, names, values)


@given(st.lists(settings | st.builds("{},{}".format, names, settings), min_size=1))
def test_items_joined_by_commas_are_split_into_the_same_items(items):
    assert from_env(CACHE_CONFIG=",".join(items)).cache_config == items


def test_merging_lets_later_values_win_and_none_override_nothing():
    environment = from_env(HTTP_PORT="1", GRPC_PORT="2", CACHE_CONFIG_0="local,size=1")
    merged = merge_configs(TritonConfig(id="a"), environment, None, TritonConfig(grpc_port=3, allow_metrics=False))
    assert merged == TritonConfig(id="a", http_port=1, grpc_port=3, allow_metrics=False, cache_config=["local,size=1"])
    assert merge_configs() == TritonConfig()


def test_parts_that_are_wrong_together_are_refused():
    with pytest.raises(PyTritonValidationError, match="allow_http and allow_grpc"):
        merge_configs(from_env(ALLOW_HTTP="0"), TritonConfig(allow_grpc=False))


@pytest.mark.parametrize("field", ["http_restricted_api", "grpc_restricted_protocol"])
def test_rules_of_restricted_endpoints_are_not_shown(field):
    assert "s3cret" not in repr(TritonConfig(**{field: "trace:key=s3cret"}))
    with pytest.raises(PyTritonValidationError, match=field) as raised:
        TritonConfig(**{field: "trace:key=s3cret\0"})
    assert "s3cret" not in str(raised.value)


def test_values_of_unknown_fields_that_look_like_secrets_are_not_shown(caplog):
    with caplog.at_level(logging.WARNING, logger="pytriton"):
        TritonConfig.from_env({"PYTRITON_TRITON_CONFIG_HTTP_RESTRICTED_APIS": "trace:key=s3cret"})
        TritonConfig.from_dict({"access_token": "s3cret"})
    assert "s3cret" not in caplog.text
    assert caplog.text.count("***") == 2
