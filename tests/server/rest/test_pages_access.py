"""The pages of an app with an access token, and their end."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.server.conftest import local_config
from tests.server.processes import DEADLINE_S
from tests.server.rest.apps import url_of, with_app

pytestmark = pytest.mark.either_proxy


def samples(client: httpx.Client, url: str, headers: dict[str, str]):
    """The samples as they come."""
    with client.stream("GET", f"{url}/pages/live", headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


def test_with_an_access_token_the_files_are_open_and_the_data_are_not():
    with with_app(access_token="secret") as triton, httpx.Client(timeout=DEADLINE_S, trust_env=False) as client:
        url = url_of(triton._rest)
        assert client.get(f"{url}/").status_code == 200
        assert client.get(f"{url}/pages/static/app.js").status_code == 200
        for path in ("about", "models", "live", "history", "workers", "batches", "log", "static/../models"):
            assert client.get(f"{url}/pages/{path}").status_code == 401, path
        caller, operator = ({"Authorization": f"Bearer {token}"} for token in ("secret", triton.get_access_token()))
        assert client.get(f"{url}/pages/models", headers=caller).status_code == 200
        assert client.get(f"{url}/pages/about", headers=caller).json()["operator"] is False
        assert client.get(f"{url}/pages/log", headers=caller).status_code == 401
        assert client.get(f"{url}/pages/log", headers=operator).status_code == 200
        assert client.post(f"{url}/predict/shout", json={"text": "a"}, headers=operator).json() == {"result": "A"}


def test_a_page_that_is_open_does_not_hold_up_the_end():
    with (
        local_config(exit_timeout_secs=1000) as config,  # more than a test may take
        with_app(config=config) as triton,
        httpx.Client(timeout=DEADLINE_S, trust_env=False) as client,
    ):
        headers = {"triton-access-token": triton.get_access_token()}
        stream = samples(client, url_of(triton._rest), headers)
        assert next(stream)["live"]
        ended = []

        def read():
            try:
                for _ in stream:
                    pass
            except httpx.HTTPError as error:
                ended.append(error)

        triton.stop()
        read()
        assert ended == []
