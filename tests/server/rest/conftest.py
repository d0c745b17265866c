"""The front in each of its ways."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.rest.ways import WAYS, Front, front_of


@pytest.fixture(scope="module", params=WAYS)
def front(request: pytest.FixtureRequest) -> Iterator[Front]:
    """The front, and the server behind it, that the tests of a module share."""
    with front_of(request.param) as front:
        yield front
