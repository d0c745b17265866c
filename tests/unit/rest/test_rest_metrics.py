"""Counters that processes share, and the app's metrics of them."""

import os

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pytriton.rest.metrics import MEMORY_BYTES, SCRATCH, VALUES, AppMetrics, Counters, totals


@pytest.fixture
def files():
    """Memory for two processes."""
    files = [os.memfd_create("test") for _ in range(2)]
    for file in files:
        os.truncate(file, MEMORY_BYTES)
    yield files
    for file in files:
        os.close(file)


def samples(metrics):
    """The values on the page, by name and the values of the labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics.text())
        for sample in family.samples
    }


def test_values_of_one_name_are_added_over_processes(files):
    first, second = map(Counters, files)
    first.values[first.place("a", 2) + 1] += 3
    second.values[second.place("b")] += 1
    second.values[second.place("a", 2) + 1] += 4
    assert totals([first, second]) == {"a": [0, 7], "b": [1]}


def test_another_mapping_of_the_same_memory_goes_on(files):
    before = Counters(files[0])
    before.values[before.place("ä", 3)] += 5
    after = Counters(files[0])
    after.values[after.place("ä", 3)] += 1
    after.values[after.place("next")] += 2
    assert totals([Counters(files[0])]) == {"ä": [6, 0, 0], "next": [2]}


def test_names_beyond_the_memory_are_counted_nowhere():
    counters = Counters()
    places = [counters.place(f"name {number}", SCRATCH) for number in range(2 * VALUES // SCRATCH)]
    long = counters.place("x" * 65_000)
    for place in (*places, long):
        counters.values[place : place + SCRATCH] = counters.values[place : place + SCRATCH]
        counters.values[place] += 1
    found = totals([counters])
    assert len(found) < len(places)
    assert all(values[0] == 1 for values in found.values())


def test_requests_are_counted_by_route_model_and_status():
    metrics = AppMetrics()
    for status, duration_s in ((200, 0.001), (200, 0.3), (500, 100.0)):
        metrics.begin()
        metrics.end("/predict/{model}", "m", status, duration_s, 10, 20)
    metrics.begin()
    found = samples(metrics)
    assert found["pytriton_rest_requests_total", "/predict/{model}", "m", "200"] == 2
    assert found["pytriton_rest_requests_total", "/predict/{model}", "m", "500"] == 1
    buckets = {key[3]: value for key, value in found.items() if key[0].endswith("_bucket")}
    assert (buckets["0.001"], buckets["0.25"], buckets["0.5"], buckets["60.0"], buckets["+Inf"]) == (1, 1, 2, 2, 3)
    assert found["pytriton_rest_request_duration_seconds_count", "/predict/{model}", "m"] == 3
    assert found["pytriton_rest_request_duration_seconds_sum", "/predict/{model}", "m"] == pytest.approx(100.301)
    assert found["pytriton_rest_request_bytes_total", "/predict/{model}", "m"] == 30
    assert found["pytriton_rest_response_bytes_total", "/predict/{model}", "m"] == 60
    assert found["pytriton_rest_requests_in_progress",] == 1


def test_a_page_tells_the_requests_of_all_processes(files):
    first, second = AppMetrics(), AppMetrics()
    first.share(files, 0)
    second.share(files, 1)
    for metrics in (first, second, second):
        metrics.begin()
        metrics.end("/r", "", 200, 0.1, 0, 0)
    assert samples(first) == samples(second)
    assert samples(first)["pytriton_rest_requests_total", "/r", "", "200"] == 3


def test_requests_that_a_dead_process_had_in_progress_are_forgotten(files):
    for _ in range(2):
        metrics = AppMetrics()
        metrics.share(files, 0)
        metrics.begin()
    assert samples(metrics)["pytriton_rest_requests_in_progress",] == 1


def test_names_are_escaped():
    metrics = AppMetrics()
    metrics.begin()
    metrics.end("/r", 'a"b\\c\nd', 200, 0.1, 0, 0)
    assert samples(metrics)["pytriton_rest_requests_total", "/r", 'a"b\\c\nd', "200"] == 1


def test_refusals_are_counted_by_model_and_status_over_processes_and_not_those_of_pages(files):
    apps = [AppMetrics() for _ in files]
    for index, each in enumerate(apps):
        each.share(files, index)
        for route, model, status in (
            ("/predict/{model}", "a", 422),
            ("/v1/models/{model}:predict", "a", 422),
            ("/predict/{model}", "a", 500),
            ("/predict/{model}", "a", 499),
            ("/predict/{model}", "a", 200),
            ("/pages/log", "", 401),
            ("", "", 401),
        ):
            each.begin()
            each.end(route, model, status, 0.1, 1, 1)
    assert apps[0].refusals() == {("a", 422): 4, ("", 401): 2}
