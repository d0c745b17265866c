"""Servers of one process are deleted together."""

import pytest

from pytriton.inprocess.handle import DeferredDeletion


def test_servers_are_deleted_when_all_have_stopped():
    servers, deleted = DeferredDeletion(), []
    for _ in range(3):
        servers.add()
    servers.remove(lambda: deleted.append("first"))
    servers.remove()  # which was not made
    assert not deleted
    servers.remove(lambda: deleted.append("last"))
    assert sorted(deleted) == ["first", "last"]


def test_a_server_that_cannot_be_deleted_does_not_keep_the_others():
    servers, deleted = DeferredDeletion(), []

    def fail():
        raise RuntimeError("no")

    for _ in range(3):
        servers.add()
    servers.remove(lambda: deleted.append("first"))
    servers.remove(fail)
    with pytest.raises(RuntimeError, match="no"):
        servers.remove(lambda: deleted.append("last"))
    assert sorted(deleted) == ["first", "last"]
    servers.add()
    servers.remove(lambda: deleted.append("next"))
    assert deleted[-1] == "next"
