"""Objects of which a forked child drops what belongs to the parent."""

from __future__ import annotations

import pytest

from pytriton import forks
from tests.unit.children import in_child


class Owner:
    """Remembers that it is in a child, and perhaps raises an error there."""

    def __init__(self, error: Exception | None = None) -> None:
        self.is_child, self._error = False, error
        forks.register(self)

    def after_fork(self) -> None:
        self.is_child = True
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("error", [OSError("no descriptor is left"), RuntimeError("a dictionary has changed")])
def test_an_owner_that_fails_in_a_child_keeps_no_other_from_being_told(error):
    owners = Owner(), Owner(error), Owner()
    assert in_child(lambda: [owner.is_child for owner in owners]) == [True] * 3
    assert not any(owner.is_child for owner in owners)
