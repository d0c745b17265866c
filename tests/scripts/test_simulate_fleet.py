"""The simulation of many servers agrees with what queueing theory knows, and with itself."""

from xml.etree import ElementTree

import fleet
import numpy as np
import pytest
import simulate_fleet
from charts import Panel, write_chart

pytestmark = pytest.mark.thorough

ONE_BY_ONE = fleet.Server(0.0, 1.0)  # a second for each request
VARIED = fleet.Server(0.0, 1.0, variation=1.0)
REQUESTS = 100_000


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_one_server_makes_requests_wait_as_long_as_the_formulas_of_its_queue_say(load):
    arrivals = fleet.poisson(load, REQUESTS)
    constant = fleet.simulate(arrivals, ONE_BY_ONE, 1)
    exponential = fleet.simulate(arrivals, VARIED, 1)
    assert constant.waits_s.mean() == pytest.approx(load / (2 * (1 - load)), rel=0.05)  # M/D/1
    assert exponential.waits_s.mean() == pytest.approx(load / (1 - load), rel=0.1)  # M/M/1
    assert exponential.latencies_s.mean() == pytest.approx(1 / (1 - load), rel=0.1)


def test_the_more_a_balancer_knows_the_shorter_is_the_wait_at_a_high_load():
    arrivals = fleet.poisson(0.9 * 20, REQUESTS)
    p99 = {route: fleet.simulate(arrivals, VARIED, 20, route).p99_s for route in fleet.ROUTES}
    assert p99["least outstanding"] < p99["two choices"] < p99["round robin"] / 1.5


def test_a_server_with_full_batches_answers_as_many_requests_as_its_capacity_says():
    server = fleet.Server(5.0, 0.5, max_batch=10)
    arrivals = fleet.poisson(100, 20_000)
    assert server.capacity == 1.0
    found = fleet.simulate(arrivals, server, 1)
    assert found.batches == pytest.approx(2000, abs=5)
    assert found.latencies_s[-1] + arrivals[-1] == pytest.approx(20_000, rel=0.001)


def test_a_delay_of_the_queue_lets_a_free_server_wait_for_others_and_no_longer():
    server = fleet.Server(1.0, 0.0, max_batch=3, delay_s=10.0)
    found = fleet.simulate(np.array([0.0, 1.0, 2.0, 20.0, 24.0]), server, 1)
    assert found.latencies_s.tolist() == [3.0, 2.0, 1.0, 11.0, 7.0]
    assert found.batches == 2


def test_an_autoscaler_ends_with_as_many_servers_as_its_signal_asks_for():
    arrivals = np.arange(20_000) / 10  # ten servers' work, for 2000 s
    scaling = fleet.Scaling("busy", 0.5, start_s=5, interval_s=5, stable_s=50)
    found = fleet.simulate(arrivals, ONE_BY_ONE, 2, scaling=scaling)
    assert 18 <= found.server_s / arrivals[-1] <= 22
    assert found.latencies_s[-10_000:].tolist() == [pytest.approx(1.0)] * 10_000


def test_the_same_arguments_give_the_same_outcome():
    first, second = (fleet.simulate(fleet.poisson(18, 2000), VARIED, 20, "two choices") for _ in range(2))
    assert first.latencies_s.tolist() == second.latencies_s.tolist()


def test_the_time_of_a_server_is_fitted_to_what_the_benchmark_measured():
    def row(connections, measure, value):
        spreads = {"native": {"median": value, "minimum": value, "maximum": value}}
        return {"group": f"http {connections} x 64 B", "measure": measure, "spreads": spreads, "ratios": {}}

    measured = [row(count, "requests/s", count / (0.001 + 0.0002 * count)) for count in (1, 16, 64)]
    found = simulate_fleet.calibrate([*measured, row(1, "p50 us", 7)])
    assert found.batch_s == pytest.approx(0.001)
    assert found.request_s == pytest.approx(0.0002)


def test_a_picture_is_well_formed_and_names_its_lines(tmp_path):
    write_chart(tmp_path / "it.svg", "a & b", [Panel("title", "x", "y", {"first < second": [(1, 2), (10, 300)]})])
    texts = [each.text for each in ElementTree.parse(tmp_path / "it.svg").iter() if each.text]
    assert {"a & b", "title", "first < second", "100"} <= set(texts)
