"""How calls are put, and what errors of libraries and servers become, per protocol."""

import importlib
import ssl

import pytest
from tritonclient.utils import InferenceServerException

from pytriton.client.dialect import GrpcDialect, HttpDialect
from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientInferenceServerError,
    PyTritonClientQueueTimeoutError,
    PyTritonClientServerUnavailableError,
    PyTritonClientTimeoutError,
    PyTritonClientTlsError,
)
from pytriton.client.flows import Call

INFER = Call("infer", 5.0)
NOT_TRUSTED = ssl.SSLCertVerificationError(1, "CERTIFICATE_VERIFY_FAILED")


def dialect_of(scheme, **options):
    kind = {"http": HttpDialect, "grpc": GrpcDialect}[scheme]
    return kind(importlib.import_module(f"tritonclient.{scheme}"), "the server", {}, **options)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize(
    ("scheme", "names"),
    [
        ("http", ["request_compression_algorithm", "response_compression_algorithm"]),
        ("grpc", ["compression_algorithm"]),
    ],
)
def test_compression_is_put_in_the_protocols_words_and_absent_by_default(scheme, names, algorithm):
    dialect = dialect_of(scheme)
    arguments = dialect.arguments(Call("infer", 5.0, compression=algorithm))
    assert {name: value for name, value in arguments.items() if "compression" in name} == dict.fromkeys(
        names, algorithm
    )
    assert not any("compression" in name for name in dialect.arguments(INFER))


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        ("UNAVAILABLE", "Exceeds maximum queue size", PyTritonClientServerUnavailableError),
        ("UNAVAILABLE", "Request timeout expired", PyTritonClientQueueTimeoutError),
        ("NOT_FOUND", "Request for unknown model: 'm' has no available versions", PyTritonClientServerUnavailableError),
        ("NOT_FOUND", "no such region", PyTritonClientInferenceServerError),
        ("INTERNAL", "OSError: Request timeout expired", PyTritonClientInferenceServerError),
        ("INVALID_ARGUMENT", "Request for unknown model", PyTritonClientInferenceServerError),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_status_tells_what_the_server_means(scheme, status, text, kind):
    codes = {"UNAVAILABLE": "503", "NOT_FOUND": "404", "INTERNAL": "500", "INVALID_ARGUMENT": "400"}
    error = InferenceServerException(text, codes[status] if scheme == "http" else f"StatusCode.{status}")
    translated = dialect_of(scheme).translate(INFER, error)
    assert type(translated) is kind
    assert translated.message == str(error)


def test_lack_of_an_access_token_is_not_said_to_pass():
    error = InferenceServerException("This protocol is restricted, expecting header", "StatusCode.UNAVAILABLE")
    assert type(dialect_of("grpc").translate(INFER, error)) is PyTritonClientInferenceServerError


def test_queue_timeout_is_both_a_timeout_and_an_answer_of_the_server():
    assert issubclass(PyTritonClientQueueTimeoutError, PyTritonClientTimeoutError)
    assert issubclass(PyTritonClientQueueTimeoutError, PyTritonClientInferenceServerError)


def wrapped(error):
    """As aiohttp does."""
    outer = OSError("cannot connect")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize("error", [NOT_TRUSTED, wrapped(NOT_TRUSTED), ssl.SSLError(1, "WRONG_VERSION_NUMBER")])
def test_failed_handshake_over_https_says_what_to_check(error):
    with pytest.raises(PyTritonClientTlsError, match=r"TLS handshake with the server failed at infer: .*check that"):
        raise dialect_of("http").translate(INFER, error)


@pytest.mark.parametrize("text", ["Ssl handshake failed: X", "Custom verification check failed with error: X"])
def test_failed_handshake_over_grpc_says_what_to_check(text):
    error = InferenceServerException(f"failed to connect to all addresses; {text}", "StatusCode.UNAVAILABLE")
    with pytest.raises(PyTritonClientTlsError, match=r"TLS handshake with the server failed at infer: .*check that"):
        raise dialect_of("grpc").translate(INFER, error)


@pytest.mark.parametrize("error", [ssl.SSLEOFError(8, "EOF"), ssl.SSLZeroReturnError(6, "closed"), OSError("reset")])
def test_connection_that_ends_in_the_handshake_is_a_connection_error_that_may_pass(error):
    translated = dialect_of("http", secured=True).translate(INFER, error)
    assert type(translated) is PyTritonClientConnectionError
    assert "demands clients' certificates" in translated.message


def test_connections_without_tls_do_not_mention_certificates():
    assert "certificate" not in dialect_of("http").translate(INFER, OSError("reset")).message
