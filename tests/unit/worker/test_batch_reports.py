"""Batches that worker processes report are counted in the process that launched them."""

import pytest

from pytriton.model_config import Recording
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.pool.batch_reports import BatchCounter, BatchReporter, WorkerObservation
from pytriton.wire.frames import REQUEST, Frame
from pytriton.worker.metrics import CallableMetrics
from pytriton.worker.observation import Observation
from pytriton.worker.recording import NumberedRecording

LABELS = {"model": "m", "version": "1"}


@pytest.fixture
def counter(registry):
    observation = Observation()
    observation.metrics = CallableMetrics.of(registry)
    return BatchCounter(observation, TritonModelConfig("m"))


def test_a_batch_is_counted_from_its_arrival_to_its_end(registry, counter):
    report = BatchReporter(counter.count, 0, Frame(REQUEST, 1, 2, [3, 4]))
    assert registry.get_sample_value("pytriton_waiting_batches", LABELS) == 1
    report.resume()
    report.resume()
    assert registry.get_sample_value("pytriton_waiting_batches", LABELS) == 0
    assert registry.get_sample_value("pytriton_in_flight_batches", LABELS) == 1
    report.failed(LookupError(), 1)
    report.failed(ValueError(), again=True)
    report.end()
    assert registry.get_sample_value("pytriton_in_flight_batches", LABELS) == 0
    assert registry.get_sample_value("pytriton_batch_rows_sum", LABELS) == 7
    assert registry.get_sample_value("pytriton_callable_seconds_count", LABELS) == 1
    assert registry.get_sample_value("pytriton_failed_requests_total", {**LABELS, "error": "LookupError"}) == 1
    assert registry.get_sample_value("pytriton_failed_requests_total", {**LABELS, "error": "ValueError"}) is None


def test_the_batches_of_a_worker_that_died_are_not_in_flight_for_ever(registry, counter):
    BatchReporter(counter.count, 0, Frame(REQUEST, 1, 2))
    counter.cancel_all()
    assert registry.get_sample_value("pytriton_in_flight_batches", LABELS) == 0
    assert registry.get_sample_value("pytriton_failed_requests_total", {**LABELS, "error": "WorkerDied"}) == 2
    counter.count(0, "ended", False, 1.0)  # of the next worker, which was asked after its batch had come
    assert registry.get_sample_value("pytriton_in_flight_batches", LABELS) == 0


def test_a_worker_reports_its_request_limit_once_and_batches_only_if_asked():
    reached, reports = [], []
    observation = WorkerObservation(3, lambda: reached.append(True), lambda *report: reports.append(report))
    for _ in range(3):
        observation.observers("m", 1, Frame(REQUEST, 1, 2))
    assert (len(reached), reports) == (1, [])
    observation.reports_batches = True
    observation.observers("m", 1, Frame(REQUEST, 1, 2))
    assert reports == [(0, "arrived", 2, None)]


def test_every_batch_is_observed_that_is_counted_or_reported():
    assert not WorkerObservation(3, lambda: None, lambda *_: None).is_idle()
    observation = WorkerObservation(None, lambda: None, lambda *_: None)
    assert observation.is_idle()
    observation.reports_batches = True
    assert not observation.is_idle()


def test_what_a_worker_sends_has_the_number_of_its_recording():
    sent, config = [], TritonModelConfig("m")
    observation = WorkerObservation(None, lambda: None, lambda *_: None)
    for numbered in (NumberedRecording(7, Recording("m.ptr")), NumberedRecording(8, Recording("m.ptr")), None):
        observation.record(config, numbered, lambda *details: sent.append(details))
    assert sent == [(7, [], 0, 0), (8, [], 0, 0)]
