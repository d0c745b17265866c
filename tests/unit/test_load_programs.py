import numpy as np
import programs
import pytest
import tally
import wire

ANSWER_BYTES = 95
PRINTED = """
finished in 2.00s, {rate:.2f} req/s, 198.61KB/s
requests: {all} total, {all} started, {all} done, {good} succeeded, {bad} failed, 0 errored, 0 timeout
status codes: {good} 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 397.21KB (406746) total, 12.01KB (12294) headers (space savings 96.25%), 403.22KB ({data}) data
"""


def read(good, bad=0, bodies=None, cut=0):
    data = 100 * (good if bodies is None else bodies) + cut
    printed = PRINTED.format(rate=good / 2, all=good + bad, good=good, bad=bad, data=data)
    log = "".join(f"1795257568193165\t200\t{latency_us}\n" for latency_us in range(1, good + 1))
    return programs.read_h2load(printed, log, 2, ANSWER_BYTES)


def test_requests_and_latencies_of_h2load_are_read():
    assert read(200) == tally.Result("h2load", 200, 200, 0, 100.0, 100.0, 180.0, 198.0)


def test_failures_that_h2load_counts_are_errors():
    assert (read(200, bad=7).errors, read(200, bad=7).answered) == (7, 200)


def test_grpc_errors_which_h2load_takes_for_successes_are_errors():
    result = read(200, bodies=150)
    assert (result.errors, result.requests, result.requests_per_s) == (50, 150, 75.0)


def test_an_answer_cut_off_at_the_end_is_neither_good_nor_an_error():
    result = read(200, cut=160)
    assert (result.errors, result.requests) == (0, 200)


def test_no_good_answer_of_h2load_is_reported():
    with pytest.raises(wire.LoadError, match="no answer in 2 s, errors: 200"):
        read(200, bodies=0)


def test_other_words_of_h2load_are_shown():
    with pytest.raises(wire.LoadError, match="could not resolve"):
        programs.read_h2load("could not resolve host", "", 2, ANSWER_BYTES)


def test_a_warm_up_counts_for_errors_and_answers_but_not_for_the_speed():
    seconds = []

    def run(duration_s):
        seconds.append(duration_s)
        return tally.Result("x", 10, 10, 2, 10 / duration_s, 1, 2, 3)

    assert programs.warmed(run, 0.5, 2) == tally.Result("x", 10, 20, 4, 5.0, 1, 2, 3)
    assert seconds == [0.5, 2]


def test_quantiles_are_latencies_that_occurred():
    assert tally.quantiles(np.array([10, 20, 30, 1000])) == [20.0, 1000.0, 1000.0]


def test_a_tally_leaves_out_warm_up_and_failures():
    warming, measuring, over = tally.Tally(3600, 3600), tally.Tally(0, 3600), tally.Tally(0, 0)
    assert warming.add(0, good=True)
    with pytest.raises(wire.LoadError, match="no request was answered well"):
        warming.result("x")
    assert measuring.add(0, good=True)
    assert measuring.add(0, good=False)
    result = measuring.result("x")
    assert (result.requests, result.answered, result.errors) == (1, 1, 1)
    assert not over.add(0, good=True)
