"""What the access token protects, and what is refused before a server starts."""

import pytest

from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config.validation import checked_copy
from pytriton.security import DEFAULT_PROTECTED_ENDPOINTS, VALID_TRITON_ENDPOINTS, TritonSecurityConfig


def test_what_calling_a_model_does_not_need_is_protected_by_default():
    config = TritonSecurityConfig()
    assert config.restricted_endpoints == DEFAULT_PROTECTED_ENDPOINTS
    assert config.restricted_endpoints is not DEFAULT_PROTECTED_ENDPOINTS
    assert {*VALID_TRITON_ENDPOINTS} - {*DEFAULT_PROTECTED_ENDPOINTS} == {
        "health",
        "metadata",
        "inference",
        "model-config",
    }


def test_a_generated_token_is_long_and_new_each_time():
    tokens = {TritonSecurityConfig().access_token for _ in range(3)}
    assert len(tokens) == 3
    assert {len(token) for token in tokens} == {43}


def test_without_anything_to_protect_there_is_no_token():
    assert TritonSecurityConfig(restricted_endpoints=[]).access_token is None
    assert TritonSecurityConfig("mine", []).access_token == "mine"


def test_a_token_of_the_users_is_kept():
    assert TritonSecurityConfig("mine", ["trace"]).access_token == "mine"


def test_the_token_is_not_shown():
    assert "mine" not in repr(TritonSecurityConfig(access_token="mine"))


def test_whether_the_endpoints_were_chosen_is_known():
    assert TritonSecurityConfig("mine").is_default
    assert not TritonSecurityConfig(restricted_endpoints=DEFAULT_PROTECTED_ENDPOINTS).is_default


def test_unknown_endpoints_are_named_beside_the_valid_ones():
    with pytest.raises(PyTritonValidationError, match=r"'nope', 'Trace'; valid are health, inference, logging, meta"):
        TritonSecurityConfig(restricted_endpoints=["trace", "nope", "Trace"])


def test_endpoints_may_be_a_set():
    assert isinstance(VALID_TRITON_ENDPOINTS, set)
    assert TritonSecurityConfig(restricted_endpoints=VALID_TRITON_ENDPOINTS).restricted_endpoints == sorted(
        VALID_TRITON_ENDPOINTS
    )


@pytest.mark.parametrize("endpoints", ["trace", 5, {"trace": 1}])
def test_endpoints_that_are_no_list_are_refused(endpoints):
    with pytest.raises(PyTritonValidationError, match="list of names"):
        TritonSecurityConfig(restricted_endpoints=endpoints)


@pytest.mark.parametrize("token", ["", "se cret", "se\ncret", "sécret", b"secret", 5])
def test_a_token_that_no_client_can_send_is_refused_and_not_shown(token):
    with pytest.raises(PyTritonValidationError, match="access_token must be printable ASCII") as raised:
        TritonSecurityConfig(access_token=token)
    assert "cret" not in str(raised.value)


def test_assigned_values_are_checked_in_a_copy_and_keep_what_was_generated():
    config = TritonSecurityConfig()
    assert checked_copy(config) == config
    assert checked_copy(config).is_default
    config.restricted_endpoints = ["trace"]
    assert not checked_copy(config).is_default
    config.restricted_endpoints = ["nothing"]
    with pytest.raises(PyTritonValidationError, match="unknown endpoints 'nothing'"):
        checked_copy(config)
