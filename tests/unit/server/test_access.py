"""Access to a server's endpoints: the rules of the token and of the user, and certificates."""

import logging

import pytest
import trustme

from pytriton.client.auth import Tls, create_auth_headers
from pytriton.config import TritonConfig
from pytriton.exceptions import PyTritonValidationError
from pytriton.security import TritonSecurityConfig
from pytriton.server.access import Restrictions, Rule, beside_application
from pytriton.server.tls import check_application_tls, check_certificates, trust_in_own_server, uses_tls
from tests.server.tls import Certificates

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


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return Certificates.in_folder(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    return Certificates.in_folder(tmp_path_factory.mktemp("theirs"))


def config_of(certificates, **fields):
    files = {"grpc_server_cert": certificates.chain, "grpc_server_key": certificates.key}
    return TritonConfig(**{"grpc_use_ssl": True, **files, **fields})


def test_grpc_uses_tls_when_it_is_told_to():
    assert not uses_tls(TritonConfig(grpc_use_ssl=False))
    assert uses_tls(TritonConfig(grpc_use_ssl=True))
    assert uses_tls(TritonConfig(grpc_use_ssl_mutual=True))
    assert not uses_tls(TritonConfig(grpc_use_ssl=True, allow_grpc=False))


def test_good_certificates_pass(ours, theirs):
    check_certificates(config_of(ours))
    check_certificates(config_of(ours, grpc_use_ssl_mutual=True, grpc_root_cert=theirs.root))
    check_certificates(TritonConfig())


@pytest.mark.parametrize("cloud", ["allow_vertex_ai", "allow_sagemaker"])
def test_a_port_of_a_cloud_beside_one_that_asks_for_certificates_is_refused(ours, cloud):
    files = {"http_server_cert": ours.chain, "http_server_key": ours.key, "http_root_cert": ours.root}
    check_certificates(TritonConfig(http_use_ssl=True, **files, **{cloud: True}))
    with pytest.raises(PyTritonValidationError, match="leave one of both out"):
        check_certificates(TritonConfig(http_use_ssl_mutual=True, **files, **{cloud: True}))


@pytest.mark.parametrize("name", ["grpc_server_cert", "grpc_server_key", "grpc_root_cert"])
def test_a_file_that_does_not_exist_is_named(ours, tmp_path, name):
    good = {"grpc_use_ssl_mutual": True, "grpc_root_cert": ours.root}
    with pytest.raises(PyTritonValidationError, match=rf"{name} {tmp_path}/none.pem cannot be read: No such file"):
        check_certificates(config_of(ours, **{**good, name: tmp_path / "none.pem"}))


@pytest.mark.parametrize("name", ["grpc_server_cert", "grpc_server_key", "grpc_root_cert"])
def test_a_file_that_is_not_given_is_named(ours, name):
    good = {"grpc_use_ssl_mutual": True, "grpc_root_cert": ours.root}
    with pytest.raises(PyTritonValidationError, match=f"grpc_use_ssl_mutual needs {name}"):
        check_certificates(config_of(ours, **{**good, name: None}))


def test_a_file_without_a_certificate_is_refused(ours, tmp_path):
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(PyTritonValidationError, match="cannot be used"):
        check_certificates(config_of(ours, grpc_server_cert=tmp_path / "empty.pem"))
    with pytest.raises(PyTritonValidationError, match=r"grpc_root_cert .* cannot be used"):
        check_certificates(config_of(ours, grpc_use_ssl_mutual=True, grpc_root_cert=tmp_path / "empty.pem"))


def test_the_key_of_another_certificate_is_refused(ours, theirs):
    with pytest.raises(PyTritonValidationError, match="cannot be used"):
        check_certificates(config_of(ours, grpc_server_key=theirs.key))


def test_certificates_without_tls_are_warned_about(ours, caplog):
    caplog.set_level(logging.WARNING, "pytriton")
    check_certificates(config_of(ours, grpc_use_ssl=False))
    assert "gRPC is not encrypted" in caplog.text


def test_we_trust_the_servers_own_certificate_under_its_name(ours):
    tls, name = trust_in_own_server(config_of(ours))
    assert name == "127.0.0.1"
    assert tls == Tls(root_certificates=str(ours.chain))


def test_a_server_that_demands_certificates_gets_its_own(ours):
    tls, _ = trust_in_own_server(config_of(ours, grpc_use_ssl_mutual=True, grpc_root_cert=ours.root))
    assert (tls.certificate_chain, tls.private_key) == (str(ours.chain), str(ours.key))


def test_a_server_that_would_refuse_its_own_certificate_is_told_to_leave_http_on(ours, theirs):
    with pytest.raises(PyTritonValidationError, match=r"Leave HTTP on.*or have grpc_root_cert"):
        trust_in_own_server(config_of(ours, grpc_use_ssl_mutual=True, grpc_root_cert=theirs.root))


@pytest.mark.parametrize(
    ("names", "options", "found"),
    [(["*.example.org"], {}, "any.example.org"), (["a.org", "b.org"], {}, "a.org"), ([], {"common_name": "me"}, "me")],
)
def test_the_name_is_that_of_the_certificate(tmp_path, names, options, found):
    files = Certificates(tmp_path / "root.pem", tmp_path / "key.pem", tmp_path / "chain.pem")
    certificate = trustme.CA().issue_cert(*names, **options)
    certificate.private_key_pem.write_to_path(str(files.key))
    certificate.cert_chain_pems[0].write_to_path(str(files.chain))
    assert trust_in_own_server(config_of(files))[1] == found


def test_beside_an_app_that_asks_for_credentials_inference_is_protected_by_default():
    security = beside_application(TritonConfig(), TritonSecurityConfig(TOKEN))
    restrictions = Restrictions.merge(TritonConfig(), security)
    for protocol in ("http", "grpc"):
        assert restrictions.header_of("inference", protocol) == "triton-access-token"
        assert restrictions.header_of("metadata", protocol) is None
    own = TritonConfig(http_restricted_api="inference:k=v")
    assert Restrictions.merge(own, beside_application(own, TritonSecurityConfig(TOKEN))).header_of(
        "inference", "http"
    ) == ("k")


@pytest.mark.parametrize(
    ("endpoints", "options", "told"),
    [
        ([], {}, "by HTTP and gRPC"),
        (["statistics"], {"allow_grpc": False}, "by HTTP:"),
        (["statistics"], {"http_restricted_api": "inference:k=v"}, "by gRPC:"),
        (["inference"], {}, None),
    ],
)
def test_models_that_the_user_left_open_beside_such_an_app_are_told(endpoints, options, told, caplog):
    security = TritonSecurityConfig(TOKEN, endpoints)
    assert beside_application(TritonConfig(**options), security) == security
    assert [told in record.getMessage() for record in caplog.records] == [True] * (told is not None)


def test_grpc_has_no_metrics_to_restrict():
    restrictions = merged(endpoints=["metrics", "trace"])
    assert [rule.endpoints for rule in restrictions.rules("http")] == [("metrics", "trace")]
    assert [rule.endpoints for rule in restrictions.rules("grpc")] == [("trace",)]
    with pytest.raises(PyTritonValidationError, match="unknown endpoints 'metrics'"):
        merged(grpc="metrics:k=v")


def test_an_app_with_a_certificate_of_its_own_beside_mutual_tls_is_refused():
    mutual = TritonConfig(http_use_ssl_mutual=True)
    with pytest.raises(PyTritonValidationError, match=r"leave RestConfig\.certificate and key out"):
        check_application_tls(mutual, has_certificate=True)
    check_application_tls(mutual, has_certificate=False)
    check_application_tls(TritonConfig(http_use_ssl=True), has_certificate=True)


@pytest.mark.parametrize(
    ("options", "is_told"),
    [
        ({}, True),
        ({"http_address": "127.0.0.1"}, False),
        ({"http_address": "unix:/run/x"}, False),
        ({"allow_http": False}, False),
        ({"grpc_use_ssl_mutual": False, "grpc_use_ssl": True}, False),
    ],
)
def test_certificates_of_clients_that_one_protocol_alone_asks_for_are_told(ours, options, is_told, caplog):
    config = config_of(ours, **{"grpc_use_ssl_mutual": True, "grpc_root_cert": ours.root, **options})
    check_certificates(config)
    assert ["HTTP serves the same models without" in each.getMessage() for each in caplog.records] == [True] * is_told
