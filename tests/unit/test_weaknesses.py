"""Weaknesses of a server are told for its version, and at the start once, where others can reach it."""

import logging

import pytest

from pytriton.server import weaknesses
from pytriton.server.installation import BUNDLED, Installation
from pytriton.server.weaknesses import warn_exposed, weaknesses_of


@pytest.fixture(autouse=True)
def untold(monkeypatch):
    monkeypatch.setattr(weaknesses, "_told", False)


@pytest.mark.parametrize("version", ["2.51.0", "2.61.0", "1.15.0"])
def test_old_versions_have_weaknesses_and_the_text_names_the_ways_out(version):
    text = weaknesses_of(version)
    assert version in text
    assert all(part in text for part in ("TRITONSERVER_HOME", "proxy in front", "docs/security.md"))


@pytest.mark.parametrize("version", ["2.62.0", "3.0", "2.70.0dev", "unknown"])
def test_nothing_is_known_of_others(version):
    assert weaknesses_of(version) == ""


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_a_bundled_server_that_others_can_reach_is_warned_of_once(caplog, address):
    for _ in range(2):
        warn_exposed(Installation(BUNDLED), ["127.0.0.1", address])
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_a_server_for_this_machine_alone_is_not_warned_of(caplog, address):
    warn_exposed(Installation(BUNDLED), [address])
    assert not caplog.records


def test_another_server_is_not_warned_of(caplog, tmp_path):
    warn_exposed(Installation(tmp_path), ["0.0.0.0"])
    assert not caplog.records
