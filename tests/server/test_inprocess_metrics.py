"""Metrics of the user's own beside those of a server within this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pytriton.inprocess import InvalidArgumentError, Metric, MetricFamily, MetricKind, Server, TritonError
from tests.server.proxies import native_part_only

pytestmark = [pytest.mark.either_proxy, native_part_only]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(model_repository=str(tmp_path_factory.mktemp("repository"))) as server:
        yield server


def test_a_counter_counts_and_is_shown(server: Server):
    family = MetricFamily(MetricKind.COUNTER, "made_counter", "things made")
    metric = Metric(family, {"kind": "good"})
    metric.increment(2)
    metric.increment(0.5)
    assert (metric.value, metric.kind) == (2.5, MetricKind.COUNTER)
    assert "# HELP made_counter things made" in server.metrics()
    assert 'made_counter{kind="good"} 2.5' in server.metrics()


def test_a_gauge_goes_both_ways(server: Server):
    metric = Metric(MetricFamily(MetricKind.GAUGE, "made_gauge", "things there"))
    metric.set_value(5)
    metric.increment(-2)
    assert metric.value == 3
    assert "made_gauge 3" in server.metrics()


def test_a_counter_takes_no_steps_back_and_no_value(server: Server):
    metric = Metric(MetricFamily(MetricKind.COUNTER, "made_strict", "things made"))
    with pytest.raises(InvalidArgumentError):
        metric.increment(-1)
    with pytest.raises(TritonError):
        metric.set_value(3)
    assert metric.value == 0


def test_a_metric_that_is_dropped_is_shown_no_more(server: Server):
    metric: Any = Metric(MetricFamily(MetricKind.GAUGE, "made_dropped", "things there"))
    assert "made_dropped 0" in server.metrics()
    del metric
    assert "made_dropped" not in server.metrics()


@pytest.mark.parametrize("labels", [{"label": 3}, {"label": "a\0b"}])
def test_a_label_is_a_text(server: Server, labels: Any):
    family = MetricFamily(MetricKind.GAUGE, "made_labels", "things there")
    with pytest.raises(InvalidArgumentError):
        Metric(family, labels)


def test_wrong_kinds_and_values_are_refused(server: Server):
    with pytest.raises(InvalidArgumentError, match="kind is 2"):
        MetricFamily(2, "made_wrong", "")  # type: ignore[arg-type]
    metric = Metric(MetricFamily(MetricKind.GAUGE, "made_wrong", ""))
    with pytest.raises(InvalidArgumentError, match="'1'"):
        metric.set_value("1")  # type: ignore[arg-type]
