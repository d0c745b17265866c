"""Certificates of the gRPC endpoint are tried before a server starts."""

import logging

import pytest
import trustme

from pytriton.config import TritonConfig
from pytriton.exceptions import PyTritonValidationError
from pytriton.server.certificates import check_certificates, own_trust, uses_tls
from tests.server.tls import Certificates


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
    arguments, name = own_trust(config_of(ours))
    assert name == "127.0.0.1"
    assert arguments == {"ssl": True, "root_certificates": str(ours.chain)}


def test_a_server_that_demands_certificates_gets_its_own(ours):
    arguments, _ = own_trust(config_of(ours, grpc_use_ssl_mutual=True, grpc_root_cert=ours.root))
    assert arguments["certificate_chain"] == str(ours.chain)
    assert arguments["private_key"] == str(ours.key)


def test_a_server_that_would_refuse_its_own_certificate_is_told_to_leave_http_on(ours, theirs):
    with pytest.raises(PyTritonValidationError, match=r"Leave HTTP on.*or have grpc_root_cert"):
        own_trust(config_of(ours, grpc_use_ssl_mutual=True, grpc_root_cert=theirs.root))


@pytest.mark.parametrize(
    ("names", "options", "found"),
    [(["*.example.org"], {}, "any.example.org"), (["a.org", "b.org"], {}, "a.org"), ([], {"common_name": "me"}, "me")],
)
def test_the_name_is_that_of_the_certificate(tmp_path, names, options, found):
    files = Certificates(tmp_path / "root.pem", tmp_path / "key.pem", tmp_path / "chain.pem")
    certificate = trustme.CA().issue_cert(*names, **options)
    certificate.private_key_pem.write_to_path(str(files.key))
    certificate.cert_chain_pems[0].write_to_path(str(files.chain))
    assert own_trust(config_of(files))[1] == found
