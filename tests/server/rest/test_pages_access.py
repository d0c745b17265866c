"""The pages of a front with an access token, and their end."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.server.processes import DEADLINE_S
from tests.server.rest.fronts import fronted, url_of

pytestmark = pytest.mark.either_proxy


def samples(client: httpx.Client, url: str):
    """The samples as they come."""
    with client.stream("GET", f"{url}/pages/live") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


def test_with_an_access_token_the_files_are_open_and_the_data_are_not():
    with fronted(access_token="secret") as triton, httpx.Client(timeout=DEADLINE_S, trust_env=False) as client:
        url = url_of(triton._rest)
        assert client.get(f"{url}/").status_code == 200
        assert client.get(f"{url}/pages/static/app.js").status_code == 200
        about = client.get(f"{url}/pages/about").json()
        assert (about["allowed"], about["operator"], about["server"]) == (False, False, "")
        for path in ("models", "live", "history", "workers", "batches", "log", "static/../models"):
            assert client.get(f"{url}/pages/{path}").status_code == 401, path
        caller, operator = ({"Authorization": f"Bearer {token}"} for token in ("secret", triton.get_access_token()))
        assert client.get(f"{url}/pages/models", headers=caller).status_code == 200
        assert client.get(f"{url}/pages/about", headers=caller).json()["operator"] is False
        assert client.get(f"{url}/pages/log", headers=caller).status_code == 401
        assert client.get(f"{url}/pages/log", headers=operator).status_code == 200
        assert client.post(f"{url}/predict/shout", json={"text": "a"}, headers=operator).json() == {"result": "A"}


def test_a_page_that_is_open_does_not_hold_up_the_end():
    with fronted() as triton, httpx.Client(timeout=DEADLINE_S, trust_env=False) as client:
        stream = samples(client, url_of(triton._rest))
        assert next(stream)["live"]
        ended = []

        def read():
            try:
                for _ in stream:
                    pass
            except httpx.HTTPError as error:
                ended.append(error)

        triton.stop()  # would take 30 s, if it waited for the page
        read()
        assert ended == []
