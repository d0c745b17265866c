"""Servers of one process are deleted together."""

import pytest

from pytriton.inprocess.lives import Lives


def test_a_server_is_deleted_when_none_lives():
    lives, deleted = Lives(), []
    for _ in range(3):
        lives.begin()
    lives.end(lambda: deleted.append("first"))
    lives.end()  # which was not made
    assert not deleted
    lives.end(lambda: deleted.append("last"))
    assert sorted(deleted) == ["first", "last"]


def test_a_server_that_cannot_be_deleted_does_not_keep_the_others():
    lives, deleted = Lives(), []

    def fail():
        raise RuntimeError("no")

    for _ in range(3):
        lives.begin()
    lives.end(lambda: deleted.append("first"))
    lives.end(fail)
    with pytest.raises(RuntimeError, match="no"):
        lives.end(lambda: deleted.append("last"))
    assert sorted(deleted) == ["first", "last"]
    lives.begin()
    lives.end(lambda: deleted.append("next"))
    assert deleted[-1] == "next"
