"""The repository index."""

from types import SimpleNamespace

from pytriton.client.repository_index import ModelState, find_model_state, parse_grpc_response, parse_http_response

INDEX = [
    {"name": "a", "version": "1", "state": "READY"},
    {"name": "a", "version": "9", "state": "UNAVAILABLE", "reason": "unloaded"},
    {"name": "a", "version": "10"},
    {"name": "b", "version": "1", "state": "UNKNOWN"},
    {"name": "never loaded"},
]
STATES = {
    ("a", "1"): ModelState.READY,
    ("a", "9"): ModelState.UNAVAILABLE,
    ("a", "10"): ModelState.LOADING,
    ("b", "1"): ModelState.UNAVAILABLE,
}


def test_index_gives_a_state_per_version():
    assert parse_http_response(INDEX) == STATES


def test_grpc_messages_give_the_same_states():
    empty = {"version": "", "state": ""}
    assert parse_grpc_response(SimpleNamespace(**{**empty, **model}) for model in INDEX) == STATES


def test_version_none_is_the_numerically_highest():
    assert find_model_state(STATES, "a", None) is ModelState.LOADING


def test_asked_version_is_found():
    assert find_model_state(STATES, "a", "1") is ModelState.READY


def test_unknown_model_and_unknown_version_are_unavailable():
    assert find_model_state(STATES, "c", None) is ModelState.UNAVAILABLE
    assert find_model_state(STATES, "a", "2") is ModelState.UNAVAILABLE
