"""How the token's rules join those of the user's configuration."""

import pytest

from pytriton.client.auth import create_auth_headers
from pytriton.config import TritonConfig
from pytriton.exceptions import PyTritonValidationError
from pytriton.security import TritonSecurityConfig
from pytriton.server.restrictions import Restrictions, Rule

TOKEN = "s3cret"
REST = "shared-memory,model-repository,trace,logging"


def merged(http=None, grpc=None, endpoints=None, token=TOKEN):
    config = TritonConfig(http_restricted_api=http, grpc_restricted_protocol=grpc)
    return Restrictions.merge(config, TritonSecurityConfig(token, endpoints))


def test_both_protocols_ask_for_the_token():
    restrictions = merged(endpoints=["trace", "logging"])
    assert restrictions.flags() == [
        f"--http-restricted-api=trace,logging:triton-access-token={TOKEN}",
        f"--grpc-restricted-protocol=trace,logging:triton-access-token={TOKEN}",
    ]
    assert restrictions.headers("http") == {"triton-access-token": TOKEN}
    assert restrictions.headers("grpc") == {"triton-grpc-protocol-triton-access-token": TOKEN}
    assert restrictions.secrets() == {TOKEN}


def test_without_restrictions_nothing_is_asked_for():
    restrictions = merged(endpoints=[])
    assert restrictions.flags() == []
    assert restrictions.headers("http") == {}
    assert restrictions.secrets() == set()


def test_the_users_rule_takes_its_endpoints_out_of_the_default_ones_of_its_protocol():
    restrictions = merged(http="statistics,inference:X-Key=open")
    assert restrictions.flags() == [
        f"--http-restricted-api={REST}:triton-access-token={TOKEN}",
        f"--grpc-restricted-protocol=shared-memory,model-repository,statistics,trace,logging:triton-access-token={TOKEN}",
    ]
    assert restrictions.headers("http") == {"x-key": "open", "triton-access-token": TOKEN}
    assert restrictions.headers("grpc") == {"triton-grpc-protocol-triton-access-token": TOKEN}
    assert restrictions.secrets() == {TOKEN, "open"}


def test_rules_of_the_user_that_name_all_endpoints_leave_none_to_the_token():
    restrictions = merged(http=f"{REST},statistics:triton-access-token=other", grpc=f"{REST},statistics:k=v")
    assert restrictions.flags() == []
    assert restrictions.headers("http") == {"triton-access-token": "other"}
    assert restrictions.headers("grpc") == {"triton-grpc-protocol-k": "v"}


def test_a_rule_with_the_tokens_header_and_value_is_no_clash():
    restrictions = merged(http=f"inference,trace:Triton-Access-Token={TOKEN}", endpoints=["trace", "logging"])
    assert restrictions.flags()[0] == f"--http-restricted-api=logging:triton-access-token={TOKEN}"
    assert restrictions.headers("http") == {"triton-access-token": TOKEN}


@pytest.mark.parametrize(
    ("protocol", "option"), [("http", "http_restricted_api"), ("grpc", "grpc_restricted_protocol")]
)
def test_an_endpoint_that_was_chosen_on_both_sides_is_a_clash(protocol, option):
    with pytest.raises(PyTritonValidationError, match=f"{option} and TritonSecurityConfig both restrict trace,"):
        merged(**{protocol: "trace,inference:k=v"}, endpoints=["trace", "logging"])


def test_the_tokens_header_with_another_value_is_a_clash():
    with pytest.raises(PyTritonValidationError, match="with another value than the access token") as raised:
        merged(http="inference:triton-access-token=hidden")
    assert "hidden" not in str(raised.value)
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    ["", "trace", "trace:k", "trace,k=hidden", "trace:=hidden", "trace:k=", ":k=hidden", "trace,,logging:k=hidden"],
)
def test_a_rule_that_the_server_would_not_understand_is_refused_and_its_value_not_shown(text):
    with pytest.raises(PyTritonValidationError, match="http_restricted_api") as raised:
        merged(http=text)
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(("names", "message"), [("Trace", "unknown endpoints 'Trace'"), ("trace,trace", "twice")])
def test_endpoints_are_checked_as_the_server_does(names, message):
    with pytest.raises(PyTritonValidationError, match=message):
        merged(grpc=f"{names}:k=v")


def test_a_value_may_hold_the_separators():
    rule = Rule.parse("option", "trace:k=a=b:c,d")
    assert (rule.header, rule.value) == ("k", "a=b:c,d")
    assert rule.text() == "trace:k=a=b:c,d"


def test_something_else_than_a_security_configuration_is_refused():
    with pytest.raises(PyTritonValidationError, match="must be a TritonSecurityConfig, got a str"):
        Restrictions.merge(TritonConfig(), TOKEN)


def test_clients_and_server_agree_on_the_header():
    restrictions = merged()
    for protocol in ("http", "grpc"):
        assert restrictions.headers(protocol) == create_auth_headers(TOKEN, protocol)


def test_values_are_not_shown():
    assert TOKEN not in repr(merged(http=f"inference:k={TOKEN}"))
