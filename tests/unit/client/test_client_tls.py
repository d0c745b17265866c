"""Certificates and keys that cannot be used are found when they are named."""

import dataclasses
import ssl

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from pytriton.client.auth import Tls
from pytriton.client.exceptions import PyTritonClientValueError
from tests.server.tls import Certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates.in_folder(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    return Certificates.in_folder(tmp_path_factory.mktemp("others"))


@pytest.mark.parametrize("name", ["root_certificates", "private_key", "certificate_chain"])
def test_file_that_cannot_be_read_is_named(certificates, tmp_path, name):
    files = {"root_certificates": certificates.root, "private_key": certificates.key}
    for path in (tmp_path / "missing.pem", tmp_path, f"{tmp_path}/\0"):
        with pytest.raises(PyTritonClientValueError, match=f"{name} .* cannot be read"):
            Tls(**{**files, "certificate_chain": certificates.chain, name: path})


def test_content_instead_of_a_path_is_refused(certificates):
    with pytest.raises(PyTritonClientValueError, match="path of a PEM file, got a bytes"):
        Tls(root_certificates=certificates.root.read_bytes())


@pytest.mark.parametrize("name", ["private_key", "certificate_chain"])
def test_key_and_chain_come_together(certificates, name):
    missing = {"private_key": "certificate_chain", "certificate_chain": "private_key"}[name]
    with pytest.raises(PyTritonClientValueError, match=f"{name} was given without {missing}"):
        Tls(**{name: certificates.key})


def test_roots_that_are_no_certificates_are_refused(certificates, tmp_path):
    (tmp_path / "text.pem").write_text("no certificate")
    for path in (tmp_path / "text.pem", certificates.key):
        with pytest.raises(PyTritonClientValueError, match=r"root_certificates .* PEM file of certificates"):
            Tls(root_certificates=path)


def test_key_that_does_not_fit_its_certificate_is_refused(certificates, others):
    with pytest.raises(PyTritonClientValueError, match="the certificate for it"):
        Tls(private_key=certificates.key, certificate_chain=others.chain)


def test_encrypted_key_is_refused_without_asking_for_its_password(certificates, tmp_path):
    key = load_pem_private_key(certificates.key.read_bytes(), None)
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"secret"))
    )
    with pytest.raises(PyTritonClientValueError, match="unencrypted key"):
        Tls(private_key=encrypted, certificate_chain=certificates.chain)


def test_the_context_trusts_the_given_authority_alone(certificates):
    tls = Tls(
        root_certificates=str(certificates.root), private_key=certificates.key, certificate_chain=certificates.chain
    )
    context = tls.context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(context.get_ca_certs()) == 1


def test_without_files_the_defaults_are_trusted():
    assert Tls().context().verify_mode is ssl.CERT_REQUIRED


def test_trust_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Tls().root_certificates = "other.pem"
