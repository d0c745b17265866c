"""The access token's headers."""

import pytest

from pytriton.client.auth import create_auth_headers, extract_access_token_from_headers

HTTP, GRPC = "triton-access-token", "triton-grpc-protocol-triton-access-token"


@pytest.mark.parametrize(("protocol", "header"), [("http", HTTP), ("HTTP", HTTP), ("grpc", GRPC), ("Grpc", GRPC)])
def test_each_protocol_has_its_header(protocol, header):
    assert create_auth_headers("secret", protocol) == {header: "secret"}


@pytest.mark.parametrize(("token", "protocol"), [("", "http"), (None, "grpc"), ("secret", "https"), ("secret", None)])
def test_missing_token_or_unknown_protocol_is_an_error(token, protocol):
    with pytest.raises(ValueError, match=r"access_token|protocol"):
        create_auth_headers(token, protocol)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_token_is_found_again(protocol):
    headers = {"other": "x", **create_auth_headers("secret", protocol)}
    assert extract_access_token_from_headers(headers) == "secret"


def test_header_names_are_compared_without_case():
    assert extract_access_token_from_headers({"Triton-Access-Token": "secret"}) == "secret"


def test_no_token_is_none():
    assert extract_access_token_from_headers({"other": "x"}) is None


def test_same_token_in_both_forms_is_fine():
    assert extract_access_token_from_headers({HTTP: "secret", GRPC: "secret"}) == "secret"


def test_different_tokens_are_an_error():
    with pytest.raises(ValueError, match="different"):
        extract_access_token_from_headers({HTTP: "secret", GRPC: "other"})
