"""The access token's headers."""

import pytest

from pytriton.client import ModelClient
from pytriton.client.auth import (
    create_auth_headers,
    extract_access_token_from_headers,
    split_access_token,
    token_or_environment,
)

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


@pytest.mark.parametrize("headers", [{"other": "x"}, {}, None])
def test_no_token_is_none(headers):
    assert extract_access_token_from_headers(headers) is None


def test_same_token_in_both_forms_is_fine():
    assert extract_access_token_from_headers({HTTP: "secret", GRPC: "secret"}) == "secret"


def test_different_tokens_are_an_error():
    with pytest.raises(ValueError, match="different"):
        extract_access_token_from_headers({HTTP: "secret", GRPC: "other"})


def test_token_is_split_from_the_other_headers():
    assert split_access_token({"Triton-Access-Token": "secret", "x-other": "y"}) == ("secret", {"x-other": "y"})
    assert split_access_token({GRPC: "secret"}) == ("secret", {})
    assert split_access_token({"x-other": "y"}) == (None, {"x-other": "y"})


@pytest.mark.parametrize(("given", "variable", "token"), [("mine", "other", "mine"), (None, "other", "other")])
def test_environment_has_the_token_of_a_client_that_is_given_none(monkeypatch, given, variable, token):
    monkeypatch.setenv("PYTRITON_ACCESS_TOKEN", variable)
    assert token_or_environment(given) == token


def test_without_a_token_in_the_environment_there_is_none(monkeypatch):
    monkeypatch.setenv("PYTRITON_ACCESS_TOKEN", "")
    assert token_or_environment(None) is None
    monkeypatch.delenv("PYTRITON_ACCESS_TOKEN")
    assert token_or_environment(None) is None


@pytest.mark.parametrize("url", ["http://localhost", "grpc://localhost"])
def test_token_in_the_environment_that_cannot_travel_is_refused_without_being_shown(monkeypatch, url):
    monkeypatch.setenv("PYTRITON_ACCESS_TOKEN", "s3cret\n")
    with pytest.raises(ValueError, match="environment variable PYTRITON_ACCESS_TOKEN is not printable") as raised:
        ModelClient(url, "m")
    assert "s3cret" not in str(raised.value)


def test_token_may_be_in_a_file(monkeypatch, tmp_path):
    file = tmp_path / "token"
    monkeypatch.delenv("PYTRITON_ACCESS_TOKEN", raising=False)
    monkeypatch.setenv("PYTRITON_ACCESS_TOKEN_FILE", str(file))
    with pytest.raises(ValueError, match=r"PYTRITON_ACCESS_TOKEN_FILE=.* cannot be read: .*No such file"):
        token_or_environment(None)
    file.write_text("\n")
    with pytest.raises(ValueError, match="is an empty file"):
        token_or_environment(None)
    file.write_text("s3cret\n")  # as an editor ends it
    assert token_or_environment(None) == "s3cret"
    assert token_or_environment("given") == "given"
    monkeypatch.setenv("PYTRITON_ACCESS_TOKEN", "variable")
    assert token_or_environment(None) == "variable"
    monkeypatch.delenv("PYTRITON_ACCESS_TOKEN")
    file.write_text("s3\x01cret")
    with pytest.raises(ValueError, match=r"the file .* is not printable") as raised:
        token_or_environment(None)
    assert "cret" not in str(raised.value).replace(str(file), "")
