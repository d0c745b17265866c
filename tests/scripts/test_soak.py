"""What the callers of a soak report, and what is judged of it."""

import callers
import growth
import pytest
import soak
from callers import Failure
from connections import CutError

pytestmark = pytest.mark.thorough


def sample(at_s, *, host=10, server=10, files=7, shared=0, workspace=3):
    rss = {"host": host << 20, "tritonserver": server << 20}
    return growth.Sample(at_s, rss, dict.fromkeys(rss, files), shared << 20, workspace)


def failure(what, began=11.0, ended=12.0, caller="raw http"):
    return Failure(began, ended, what, "", caller)


def refusal():
    try:
        raise ConnectionRefusedError(111, "Connect call failed")
    except OSError as error:
        other = OSError("the connection failed")
        other.__cause__ = error
        return other


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (ConnectionRefusedError(), "refused"),
        (refusal(), "refused"),
        (OSError("Request for unknown model: 'double' has no available versions"), "refused"),
        (ConnectionResetError("the server closed the connection"), "closed"),
        (CutError("the server closed the connection"), "lost"),
        (OSError("what nobody expected"), "lost"),
    ],
)
def test_an_exception_is_judged_by_its_causes(error, what):
    assert callers.judge(error)[0] == what


def test_calls_are_counted_by_what_they_came_to_and_those_that_are_not_right_are_kept():
    calls = callers.Calls(timeout_s=3600)
    began = callers.time.monotonic()
    for what in ("right", "right: stopped", "right", "refused"):
        calls.count(what, [began])
    counts, (kept,) = calls.take()
    assert counts == {"right": 2, "right: stopped": 1, "refused": 1}
    assert (kept.began, kept.what) == (began, "refused")
    assert calls.take() == ({}, [])


def test_a_call_is_slow_if_one_wait_for_a_response_is_beyond_both_timeouts():
    calls, now = callers.Calls(timeout_s=1000), callers.time.monotonic()
    calls.count("right", [now - 5000, now - 3500, now - 1800])  # each wait is below 2 * 1000 + 1 s
    calls.count("right", [now - 2500])
    assert calls.take()[0] == {"right": 1, "slow": 1}


@pytest.mark.parametrize("what", ["refused", "closed", "lost", "wrong: 3", "slow"])
def test_no_failure_is_excused_without_an_attack_or_beside_one(what):
    kill = soak.Attack("kill server", 20.0, 30.0)
    assert not soak.excused(failure(what), [])
    assert not soak.excused(failure(what), [kill])


@pytest.mark.parametrize(
    ("attack", "excuses"),
    [
        ("kill server", {"refused", "closed", "lost"}),
        ("pause host", {"refused", "closed", "lost"}),
        ("pause client", {"refused", "closed", "lost", "slow"}),
        ("stop host", {"refused", "closed"}),
        ("unbind models", {"refused"}),
        ("kill template", set()),
    ],
)
def test_an_attack_excuses_what_it_may_bring_about(attack, excuses):
    found = [soak.Attack(attack, 10.0, 20.0)]
    whats = {"refused", "closed", "lost", "wrong: 3", "slow"}
    assert {what for what in whats if soak.excused(failure(what), found)} == excuses


def test_a_stop_excuses_no_closed_connection_of_a_request_that_was_sent_before():
    stop = [soak.Attack("stop host", 10.0, 20.0)]
    assert not soak.excused(failure("closed", began=9.9), stop)
    assert soak.excused(failure("closed", began=9.9, caller="blocking http"), stop)  # which prepares at first


@pytest.mark.parametrize(
    ("later", "complaint"),
    [
        ({}, ""),
        ({"host": 70}, ""),
        ({"host": 80}, "host RSS MiB: 10.0, then 80.0"),
        ({"server": 80}, ""),
        ({"files": 50}, "host open files: 7.00, then 50.0"),
        ({"shared": 80}, "/dev/shm MiB: 0, then 80.0"),
        ({"workspace": 50}, "workspace files: 3.00, then 50.0"),
    ],
)
def test_growth_since_a_life_has_settled_is_a_problem_of_what_lasts(later, complaint):
    samples = [sample(0, host=1), sample(60), sample(100, host=500), sample(120, **later)]
    assert growth.grown(samples, lasting=["host"]) == ([complaint] if complaint else [])


def test_growth_of_every_process_counts_if_none_is_named():
    assert growth.grown([sample(0), sample(30), sample(60, server=80)]) == ["tritonserver RSS MiB: 10.0, then 80.0"]


def test_a_host_has_settled_after_a_minute_or_half_of_a_shorter_load():
    assert growth.settled([sample(at_s) for at_s in (0, 30, 60, 120, 180)]).at_s == 60
    assert growth.settled([sample(at_s) for at_s in (0, 5, 10)]).at_s == 5
    assert growth.settled([sample(3)]).at_s == 3


def test_the_table_has_a_line_for_each_sort_of_attack_for_calls_and_for_quantities():
    found = soak.Soak(lives=[[sample(0), sample(60)]])
    found.attacks = [soak.Attack("kill server", 0, 1, seconds) for seconds in (0.5, 1.5, 2.5)]
    found.found.calls["right"] = 123
    lines = [line.split() for line in soak.table(found).splitlines()]
    assert lines[1] == ["kill", "server", "3", "1.50", "2.50"]
    assert lines[2] == ["calls,", "right", "123"]
    assert len(lines) == 3 + 1 + 6
