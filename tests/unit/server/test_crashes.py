"""What is read of the requests before a crash, and whom the edge refuses because of them."""

import os

import pytest

from pytriton.server.crashes import ENTRY, RECENT_BYTES, Crashes, RecentRequest, described, read_requests

ATTACKER, OTHER = "10.0.0.66", "10.0.0.7"


def request(peer, is_in_flight=True, number=1):
    return RecentRequest(number, "POST /v2/models/m/infer", 49152, peer, is_in_flight)


def entry(number, peer=b"10.0.0.7", target=b"GET /v2", is_in_flight=0, size=5):
    return ENTRY.pack(number, size, is_in_flight, len(peer), len(target), peer, target)


def test_the_last_request_comes_first_and_places_that_were_not_used_are_left_out(tmp_path):
    path = tmp_path / "requests"
    path.write_bytes(
        entry(513)
        + entry(2, is_in_flight=1)
        + entry(3, b"::1", b"POST /\xff")
        + entry(4, b"", size=0)
        + bytes(RECENT_BYTES)
    )
    os.truncate(path, RECENT_BYTES)
    descriptor = os.open(path, os.O_RDWR)
    try:
        found = read_requests(descriptor)
    finally:
        os.close(descriptor)
    assert [(each.number, each.peer, each.is_in_flight) for each in found] == [
        (513, "10.0.0.7", False),
        (3, "::1", False),
        (2, "10.0.0.7", True),
    ]
    assert found[1].target == "POST /\N{REPLACEMENT CHARACTER}"


def test_a_line_tells_the_requests_in_flight_and_else_the_last_one():
    assert described([]) == ""
    last = request(OTHER, is_in_flight=False)
    assert described([last]) == (
        "the last request over HTTP was 'POST /v2/models/m/infer' with 49152 bytes from 10.0.0.7"
    )
    line = described([last, *[request(ATTACKER)] * 5, request("")])
    assert line.startswith("in flight over HTTP were 'POST /v2/models/m/infer' with 49152 bytes from 10.0.0.66, ")
    assert line.endswith(" and 3 more")
    assert described([RecentRequest(1, "GET /a\nERROR b", 0, "", True)]) == (
        r"in flight over HTTP were 'GET /a\nERROR b' with 0 bytes from a Unix socket"
    )


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def crashes(clock):
    return Crashes(lambda: clock[0])


def test_an_address_is_refused_at_the_third_of_five_crashes_and_longer_each_time(crashes, clock):
    by_attacker, by_nobody = [request(ATTACKER), request(OTHER, False)], [request(OTHER, False)]
    assert [crashes.record(each) for each in (by_attacker, by_nobody, by_attacker)] == [[], [], []]
    assert crashes.record(by_attacker) == [(ATTACKER, 60.0)]
    assert crashes.refused() == {ATTACKER: 1060.0}
    clock[0] = 1060.0
    assert crashes.refused() == {}
    assert crashes.record(by_attacker) == [(ATTACKER, 120.0)]
    for _ in range(20):
        ((_, period_s),) = crashes.record(by_attacker)
    assert period_s == 3600.0
    assert crashes.count == 25


def test_crashes_of_long_ago_do_not_count(crashes):
    by_attacker, by_nobody = [request(ATTACKER), request(OTHER, False)], [request(OTHER, False)]
    crashes.record(by_attacker)
    crashes.record(by_attacker)
    for _ in range(4):
        crashes.record(by_nobody)
    assert crashes.record(by_attacker) == []


def test_addresses_of_a_network_are_one_client(crashes):
    for number in range(2):
        assert crashes.record([request(f"2001:db8:0:7::{number:x}"), request(OTHER, False)]) == []
    assert crashes.record([request("2001:db8:0:7:a:b:c:d"), request(OTHER, False)]) == [("2001:db8:0:7::/64", 60.0)]


def test_a_proxy_with_several_addresses_of_a_network_is_the_only_client_of_all(crashes):
    by_proxy = [request("2001:db8:0:7::1"), request("2001:db8:0:7::2", False)]
    assert [crashes.record(by_proxy) for _ in range(5)] == [[]] * 5


def test_an_address_that_cannot_be_read_is_itself(crashes):
    found = [crashes.record([request("2001:db8:?"), request(OTHER, False)]) for _ in range(3)]
    assert found == [[], [], [("2001:db8:?", 60.0)]]


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.3.2.1", "::1", ""])
def test_this_machine_is_never_refused(crashes, peer):
    assert [crashes.record([request(peer), request(OTHER, False)]) for _ in range(5)] == [[]] * 5


def test_the_only_client_of_all_is_not_refused(crashes):
    """It may be a proxy in front, and stand for everybody."""
    assert [crashes.record([request(ATTACKER), request("")]) for _ in range(5)] == [[]] * 5
