"""What the callers of chaos and soak report, and what is judged of it."""

import checked
import pytest
import soak


def sample(at_s, *, host=10, server=10, files=7, shared=0, workspace=3):
    rss = {"host": host << 20, "tritonserver": server << 20}
    return soak.Sample(at_s, rss, dict.fromkeys(rss, files), shared << 20, workspace)


def test_calls_within_their_timeouts_that_came_to_anything_but_wrong_are_no_problem():
    found = checked.Found(timeout_s=5.0)
    found.add({"right": 3, "PyTritonClientConnectionError": 2}, 10.0, "asyncio http")
    found.add({"right": 1}, 0.1, "blocking grpc")
    assert found.calls == {"right": 4, "PyTritonClientConnectionError": 2}
    assert found.longest_s == 10.0
    assert found.problems == []


def test_wrong_answers_and_calls_beyond_both_of_their_timeouts_are_problems():
    found = checked.Found(timeout_s=5.0)
    found.add({"wrong: 1 of 2 responses": 1}, 11.5, "streams grpc")
    assert [each.partition(":")[0] for each in found.problems] == [
        "a call of the streams grpc caller took 11.5 s, beyond its timeouts",
        "streams grpc",
    ]


@pytest.mark.parametrize(
    ("later", "complaint"),
    [
        ({}, ""),
        ({"host": 70}, ""),
        ({"host": 80}, "host: 10485760 bytes, then 83886080"),
        ({"server": 80}, ""),
        ({"files": 50}, "host: 7 open files, then 50"),
        ({"shared": 80}, "/dev/shm: 0 bytes, then 83886080"),
        ({"workspace": 50}, "workspace: 3 files, then 50"),
    ],
)
def test_growth_since_a_life_has_settled_is_a_problem_of_what_lasts(later, complaint):
    samples = [sample(0, host=1), sample(60), sample(100, host=500), sample(120, **later)]
    assert soak.grown(samples, lasting=["host"]) == ([complaint] if complaint else [])


def test_growth_of_every_process_counts_if_none_is_named():
    assert soak.grown([sample(0), sample(30), sample(60, server=80)]) == ["tritonserver: 10485760 bytes, then 83886080"]
