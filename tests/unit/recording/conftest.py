"""What the tests of recordings share."""

import pytest


@pytest.fixture
def path(tmp_path):
    return tmp_path / "day.ptr"
