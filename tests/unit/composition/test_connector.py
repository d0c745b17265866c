"""How callables reach their server."""

from __future__ import annotations

from pytriton.composition.connector import NetworkConnector, secret_of


def test_programs_share_the_secret_of_a_server_by_its_access_token():
    assert secret_of("token") == secret_of("token") != secret_of("other")
    assert secret_of(None) == secret_of(None) != secret_of("None")


def test_the_secret_is_not_shown():
    connector = NetworkConnector("http://localhost:8000", None, secret_of("token"))
    assert secret_of("token") not in repr(connector)
    assert "token" not in secret_of("token")
