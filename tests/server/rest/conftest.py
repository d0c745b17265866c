"""The app in each of its ways."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.rest.ways import WAYS, RunningApp, app_of


@pytest.fixture(scope="module", params=WAYS)
def app(request: pytest.FixtureRequest) -> Iterator[RunningApp]:
    """The app, and the server behind it, that the tests of a module share."""
    with app_of(request.param) as app:
        yield app
