"""The figures of a load test: percentiles, rates, the histogram."""

from array import array

import numpy as np
import pytest
from rich.console import Console

from pytriton.cli.bench import BAR_COLUMNS, BINS, Percentiles, Summary, histogram
from pytriton.cli.load import Measurement, RequestResult, count_error
from pytriton.client.exceptions import PyTritonClientInferenceServerError


def rows_of(table):
    console = Console(width=160)
    with console.capture() as captured:
        console.print(table)
    return [line.split() for line in captured.get().splitlines() if " - " in line]


@pytest.mark.parametrize(
    "latencies", [[0.002] * 5, [0.001, 0.0011, 0.0012], [0.0001, 0.01, 1.5], np.geomspace(1e-4, 1, 1000), [0.0, 0.1]]
)
def test_a_histogram_counts_each_latency_once_from_the_least_to_the_greatest(latencies):
    rows = rows_of(histogram(array("d", latencies)))
    assert sum(int(row[3].replace(",", "")) for row in rows) == len(latencies)
    assert float(rows[0][0]) == pytest.approx(1000 * min(latencies), abs=0.001)
    assert float(rows[-1][2].replace(",", "")) == pytest.approx(1000 * max(latencies), abs=0.001)
    assert len(rows) == (1 if min(latencies) == max(latencies) else BINS)
    assert max(len(row[4]) for row in rows if len(row) > 4) == BAR_COLUMNS


def test_a_rare_latency_is_visible_in_the_histogram():
    assert rows_of(histogram(array("d", [0.001] * 1000 + [0.002])))[-1][3:] == ["1", "▏"]


def test_an_axis_over_more_than_a_decade_is_logarithmic():
    ratios = [float(row[2]) / float(row[0]) for row in rows_of(histogram(array("d", [0.001, 0.5])))]
    assert max(ratios) == pytest.approx(min(ratios), rel=0.01)


def test_percentiles_are_in_milliseconds():
    seconds = Measurement().latencies_s
    seconds.extend(each / 1000 for each in range(1, 102))
    found = Percentiles.of(seconds)
    assert [found.mean, found.min, found.p50, found.p90, found.p99, found.max] == pytest.approx(
        [51, 1, 51, 91, 100, 101]
    )


def test_rates_are_those_of_the_answered_requests():
    measurement = Measurement(elapsed_s=2.0)
    for _ in range(10):
        measurement.add(0.0, RequestResult(3, 0.5), 1.0)
    count_error(measurement.errors, PyTritonClientInferenceServerError("no"))
    figures = Summary.of(measurement, rows=4).to_dict()
    assert (figures["requests_per_s"], figures["rows_per_s"], figures["responses_per_s"]) == (5, 20, 15)
    assert (figures["answered"], figures["failed"], figures["errors"]) == (10, 1, {"no": 1})
    assert (figures["latency_ms"]["max"], figures["first_response_ms"]["max"]) == (1000, 500)


def test_without_answers_there_are_no_times():
    summary = Summary.of(Measurement(), rows=0)
    assert (summary.latency_ms, summary.first_response_ms, summary.per_second(0)) == (None, None, 0)
