"""tritonclient reads what the server has counted."""

import time

import pytest

from pytriton.decorators import batch
from tests.server.arrays import filled
from tests.server.conftest import local_config
from tests.server.gated import Gated
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.proxies import IS_NATIVE

PAUSE_S = 0.02


@pytest.fixture(scope="module")
def triton_config():
    with local_config(cache_config=["local,size=1048576"]) as config:
        yield config


@batch
def pausing(x):
    if x[0, 0] < 0:
        raise ValueError("below zero")
    time.sleep(PAUSE_S)
    return [x * 2]


@pytest.fixture
def model(bind):
    """Belongs to one test."""
    return bind(pausing, max_batch_size=8)


def statistics(api, model, version=""):
    (found,) = api.call("get_inference_statistics", model, version)["model_stats"]
    return found


def after(api, model, requests):
    """Statistics once so many requests are in them: a request is answered before it is counted."""
    wait_for(lambda: counted(statistics(api, model)).get("success") == requests, f"{requests} requests to be counted")
    return statistics(api, model)


def counted(statistics):
    """How often each phase happened; protobuf's JSON leaves zeros out."""
    phases = statistics["inference_stats"]
    return {name: phase["count"] for name, phase in phases.items() if phase.get("count")}


def test_requests_and_their_rows_are_counted(api, model):
    assert counted(statistics(api, model)) == {}
    before_ms = time.time() * 1000
    for rows in (1, 3, 3):
        api.infer(model, {"x": filled(1, rows=rows)})
    found = after(api, model, 3)
    assert (found["name"], found["version"]) == (model, "1")
    assert (found["inference_count"], found["execution_count"]) == (7, 3)
    phases = ["success", "queue", "compute_input", "compute_infer", "compute_output"]
    assert counted(found) == dict.fromkeys(phases, 3)
    assert found["inference_stats"]["compute_infer"]["ns"] >= 3 * PAUSE_S * 1e9
    assert found["inference_stats"]["success"]["ns"] >= found["inference_stats"]["compute_infer"]["ns"]
    assert {entry["batch_size"]: entry["compute_infer"]["count"] for entry in found["batch_stats"]} == {1: 1, 3: 2}
    assert before_ms - 1000 <= found["last_inference"] <= time.time() * 1000 + 1000
    assert statistics(api, model, "1") == found


def test_an_error_of_the_callable_counts_as_the_proxy_sees_it(api, model):
    with api.refuses("INTERNAL", "below zero"):
        api.infer(model, {"x": filled(-1)})
    if IS_NATIVE:
        wait_for(lambda: counted(statistics(api, model)).get("fail") == 1, "the request to be counted")
        assert "success" not in counted(statistics(api, model))
    else:  # the server's Python backend does not tell them apart
        assert "fail" not in counted(after(api, model, 1))


def test_merged_requests_are_one_execution(api, bind, pending):
    gated = Gated()
    model = bind(gated, max_batch_size=8)
    first = api.submit("infer", model, api.inputs({"x": filled(0)}))
    gated.wait_called()
    others = [api.submit("infer", model, api.inputs({"x": filled(n)})) for n in range(4)]
    wait_for(lambda: pending(model) == 4, "the requests to wait")
    gated.gate.open()
    for call in (first, *others):
        call.result(DEADLINE_S)
    found = after(api, model, 5)
    assert (found["inference_count"], found["execution_count"]) == (5, 2)


def test_without_a_name_all_models_come(api, model, bind):
    names = {entry["name"] for entry in api.call("get_inference_statistics")["model_stats"]}
    assert model in names
    assert bind(pausing) not in names
    assert len(api.call("get_inference_statistics")["model_stats"]) == len(names) + 1


def test_unknown_models_and_versions_are_refused(api, model):
    for arguments in (("unknown",), (model, "7")):
        with api.refuses("INVALID_ARGUMENT", "not available"):
            api.call("get_inference_statistics", *arguments)


def test_answers_from_the_cache_are_counted(api, bind):
    calls = []

    def counting(requests):
        calls.append(len(requests))
        return [{"y": request["x"]} for request in requests]

    model = bind(counting, response_cache=True)
    for value in (1, 1, 2, 1):
        assert api.infer(model, {"x": filled(value)})["y"][0, 0] == value
    assert calls == [1, 1]
    found = counted(after(api, model, 4))
    assert (found["cache_hit"], found["cache_miss"]) == (2, 2)
