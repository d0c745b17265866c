"""tritonclient reads and changes what the server logs and traces."""

import json

import pytest
from tritonclient.utils import InferenceServerException

from tests.server.arrays import filled
from tests.server.conftest import local_config
from tests.server.processes import wait_for

pytestmark = pytest.mark.either_proxy

FORMATS = {"default": "I", "ISO8601": "20"}  # how lines of information begin


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("settings")


@pytest.fixture(scope="module")
def triton_config(folder):
    trace = ["level=OFF", "rate=1", "count=-1", "mode=triton"]
    trace += [f"triton,file={folder / 'trace'}", "triton,log-frequency=1"]
    with local_config(trace_config=trace, log_file=folder / "log") as config:
        yield config


@pytest.fixture(scope="module")
def model(bind):
    return bind(lambda requests: [{"y": request["x"]} for request in requests])


@pytest.fixture
def traces(api, model):
    """``traces(level)`` changes the model's level until the end of the test."""
    yield lambda **settings: api.call("update_trace_settings", model, settings=settings)
    api.call("update_trace_settings", model, settings=dict.fromkeys(["trace_level", "trace_rate", "log_frequency"]))
    api.call("update_trace_settings", settings=dict.fromkeys(["trace_level", "trace_rate", "log_frequency"]))


@pytest.fixture
def logs(api):
    yield lambda **settings: api.call("update_log_settings", settings)
    api.call("update_log_settings", {"log_verbose_level": 0, "log_format": "default", "log_info": True})


def test_trace_settings_are_those_of_the_configuration(api, folder, model):
    expected = {
        "trace_level": ["OFF"],
        "trace_rate": "1",
        "trace_count": "-1",
        "log_frequency": "1",
        "trace_file": str(folder / "trace"),
        "trace_mode": "triton",
    }
    assert api.call("get_trace_settings") == expected
    assert api.call("get_trace_settings", model) == expected


def test_global_trace_settings_change_and_go_back(api, traces):
    changed = api.call("update_trace_settings", settings={"trace_rate": "7", "trace_level": ["TIMESTAMPS", "TENSORS"]})
    assert (changed["trace_rate"], sorted(changed["trace_level"])) == ("7", ["TENSORS", "TIMESTAMPS"])
    assert api.call("get_trace_settings") == changed
    back = api.call("update_trace_settings", settings={"trace_rate": None, "trace_level": None})
    assert (back["trace_rate"], back["trace_level"]) == ("1", ["OFF"])


def test_settings_of_a_model_win_over_global_ones_until_they_are_cleared(api, model, traces):
    assert traces(trace_rate="5")["trace_rate"] == "5"
    api.call("update_trace_settings", settings={"trace_rate": "7"})
    assert api.call("get_trace_settings", model)["trace_rate"] == "5"
    assert api.call("get_trace_settings")["trace_rate"] == "7"
    assert traces(trace_rate=None)["trace_rate"] == "7"


@pytest.mark.parametrize(
    ("settings", "status", "text"),
    [
        ({"trace_file": "/elsewhere"}, "UNIMPLEMENTED", "trace file location can not be updated"),
        ({"trace_rate": "often"}, "INVALID_ARGUMENT", "Unable to parse 'trace_rate'"),
        ({"trace_level": ["OFF", "TIMESTAMPS"]}, "INVALID_ARGUMENT", "only one trace level 'OFF'"),
    ],
)
def test_trace_settings_that_make_no_sense_are_refused(api, model, settings, status, text):
    before = api.call("get_trace_settings")
    with api.refuses(status, text):
        api.call("update_trace_settings", settings=settings)
    with api.refuses(status, text):
        api.call("update_trace_settings", model, settings=settings)
    assert api.call("get_trace_settings") == before


def test_trace_settings_of_an_unknown_model_are_refused(api):
    for method, options in (("get_trace_settings", {}), ("update_trace_settings", {"settings": {"trace_rate": "1"}})):
        with api.refuses("INVALID_ARGUMENT", "unknown model"):
            api.call(method, "unknown", **options)


def test_a_traced_request_is_written_with_its_activities(api, folder, model, traces):
    traces(trace_level=["TIMESTAMPS"])
    request_id = f"traced {api.kind}"
    api.infer(model, {"x": filled(1)}, request_id=request_id)
    traces(trace_level=["OFF"])
    api.infer(model, {"x": filled(1)}, request_id=f"not {request_id}")

    def written():
        entries = []
        for file in folder.glob("trace.*"):
            try:
                entries += json.loads(file.read_text())
            except ValueError:  # it is being written
                return []
        ids = {entry["id"] for entry in entries if entry.get("request_id") == request_id}
        assert not [entry for entry in entries if entry.get("request_id") == f"not {request_id}"]
        found = [entry for entry in entries if entry["id"] in ids]
        names = {stamp["name"] for entry in found for stamp in entry.get("timestamps", ())}
        return names if {entry.get("model_name") for entry in found} >= {model} else []

    wait_for(lambda: {"REQUEST_START", "COMPUTE_START", "COMPUTE_END", "REQUEST_END"} <= set(written()), "the trace")


def test_log_settings_are_those_of_the_configuration(api, folder):
    assert api.call("get_log_settings") == {
        "log_file": str(folder / "log"),
        "log_info": True,
        "log_warning": True,
        "log_error": True,
        "log_verbose_level": 0,
        "log_format": "default",
    }


def test_log_settings_change_one_by_one(api, logs):
    before = api.call("get_log_settings")
    assert logs(log_info=False) == {**before, "log_info": False}
    assert logs(log_verbose_level=2) == {**before, "log_info": False, "log_verbose_level": 2}
    assert logs(log_format="ISO8601", log_info=True) == {**before, "log_verbose_level": 2, "log_format": "ISO8601"}
    assert api.call("get_log_settings")["log_format"] == "ISO8601"
    assert logs(log_verbose_level=0, log_format="default") == before


@pytest.mark.parametrize("log_format", FORMATS)
def test_a_verbose_server_writes_requests_into_its_log(api, folder, model, logs, log_format):
    request_id = f"logged-{api.kind}-{log_format}"
    api.infer(model, {"x": filled(1)}, request_id=f"not {request_id}")
    logs(log_verbose_level=1, log_format=log_format)
    api.infer(model, {"x": filled(1)}, request_id=request_id)

    def text():
        return (folder / "log").read_text()

    def lines():
        return [line for line in text().splitlines() if f"[request id: {request_id}] prepared" in line]

    wait_for(lines, "the request to be written")
    assert lines()[0].startswith(FORMATS[log_format])
    assert f"[request id: not {request_id}] prepared" not in text()


def test_the_log_file_cannot_be_moved(api):
    with api.refuses("UNIMPLEMENTED", "log file location can not be updated"):
        api.call("update_log_settings", {"log_file": "/elsewhere"})


@pytest.mark.parametrize("settings", [{"log_format": "prose"}, {"log_verbose_level": -1}])
def test_log_settings_that_make_no_sense_are_refused(api, settings):
    before = api.call("get_log_settings")
    with pytest.raises((InferenceServerException, ValueError)):  # gRPC's messages hold no negative level
        api.call("update_log_settings", settings)
    assert api.call("get_log_settings") == before
