"""Conversations with a server, on a scripted one."""

import math
import re

import numpy as np
import pytest

from pytriton.client.conversations import Deadline
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientInferenceServerError,
    PyTritonClientInputError,
    PyTritonClientModelDoesntSupportBatchingError,
    PyTritonClientModelUnavailableError,
    PyTritonClientServerUnavailableError,
    PyTritonClientTimeoutError,
    PyTritonClientTlsError,
    PyTritonClientUnreachableError,
    PyTritonClientValueError,
)
from pytriton.client.repository_index import ModelState, model_state
from pytriton.client.sync import drive
from pytriton.client.waiting import fetch_model_config, wait_for_model, wait_for_server
from pytriton.exceptions import PyTritonModelConfigError
from tests.unit.scripted import CONFIG, Result, Script, config, infer, session

REFUSED = PyTritonClientConnectionError("refused")
LOADING = [{"name": "m", "version": "1", "state": "LOADING"}]
RESTRICTED = PyTritonClientInferenceServerError("restricted")
SLOW = PyTritonClientTimeoutError("slow")


def test_waiting_for_the_server_needs_it_live_and_then_ready():
    server = Script(REFUSED, False, True, SLOW, RESTRICTED, True)
    drive(wait_for_server(server.deadline(math.inf)), server)
    assert server.methods == ["is_server_live"] * 3 + ["is_server_ready"] * 3


def test_polls_follow_closely_at_first_and_at_most_a_second_apart():
    server = Script(*[False] * 150, True, True)
    drive(wait_for_server(server.deadline(math.inf)), server)
    assert server.naps[:4] == pytest.approx([0.01, 0.02, 0.03, 0.04])
    assert server.naps[-1] == 1.0


def test_polls_are_as_far_apart_as_asked():
    server = Script(*[False] * 3, True, True)
    drive(wait_for_server(server.deadline(math.inf), 0.7), server)
    assert server.naps == [0.7] * 3


def test_waiting_for_the_server_ends_at_the_deadline_with_the_reason():
    server = Script(is_server_live=REFUSED)
    with pytest.raises(
        PyTritonClientTimeoutError, match=r"within 2.5 s; the last attempt failed with: refused"
    ) as error:
        drive(wait_for_server(server.deadline(2.5)), server)
    assert error.value.__cause__ is None  # the message says all
    assert error.value.__suppress_context__
    assert server.now == pytest.approx(1002.5)


def test_lack_of_trust_is_not_waited_for():
    server = Script(REFUSED, PyTritonClientTlsError("not trusted"))
    with pytest.raises(PyTritonClientTlsError, match="not trusted"):
        drive(wait_for_model("m", None, server.deadline(math.inf)), server)


def test_reason_of_a_timeout_is_that_of_the_last_attempt():
    server = Script(REFUSED, *[False] * 100)
    with pytest.raises(PyTritonClientTimeoutError, match=r"within 1 s$"):
        drive(wait_for_server(server.deadline(1)), server)


def test_calls_are_bounded_by_the_network_timeout_and_by_the_deadline():
    server = Script(True, True)
    drive(wait_for_server(server.deadline(1000)), server)
    drive(wait_for_server(server.deadline(2)), script := Script(True, True))
    assert {call.timeout_s for call in server.calls} == {5.0}
    assert {call.timeout_s for call in script.calls} == {2.0}


def test_a_server_that_does_not_answer_is_asked_for_longer_each_time():
    def slow(call):
        server.now += call.timeout_s
        raise SLOW

    server = Script(is_server_live=slow)
    with pytest.raises(PyTritonClientTimeoutError):
        drive(wait_for_server(server.deadline(300)), server)
    bounds = [round(call.timeout_s) for call in server.calls]
    assert (bounds[:4], max(bounds)) == ([5, 5, 10, 20], 60)


def test_interrupt_during_a_wait_passes():
    with pytest.raises(KeyboardInterrupt):
        drive(wait_for_server(Deadline(math.inf)), Script(False, KeyboardInterrupt()))


def test_ready_model_needs_one_question():
    server = Script(True)
    drive(wait_for_model("m", "3", server.deadline(10)), server)
    assert server.methods == ["is_model_ready"]
    assert server.calls[0].arguments == {"model_name": "m", "model_version": "3"}


def test_highest_version_is_asked_for_without_a_version():
    server = Script(True)
    drive(wait_for_model("m", None, server.deadline(10)), server)
    assert server.calls[0].arguments["model_version"] == ""


def no_model(call):
    raise PyTritonClientServerUnavailableError("Request for unknown model: 'm' is not found")


def not_loaded(call):
    raise PyTritonClientServerUnavailableError("Request for unknown model: 'm' has no available versions")


def script(index, config=no_model, ready=False, server_ready=True):
    """A server that is asked for the model ``m``."""
    return Script(
        is_model_ready=ready, is_server_ready=server_ready, get_model_config=config, get_model_repository_index=index
    )


@pytest.mark.parametrize("index", [[], RESTRICTED])
def test_unknown_model_is_unavailable_at_the_deadline(index):
    with pytest.raises(
        PyTritonClientModelUnavailableError, match=r"model 'm' \(version 2\) is not available"
    ) as caught:
        drive(wait_for_model("m", "2", (server := script(index)).deadline(20)), server)
    assert isinstance(caught.value, PyTritonClientTimeoutError)
    assert server.now == pytest.approx(1020)


@pytest.mark.parametrize("index", [LOADING, ["no entry"], RESTRICTED, REFUSED, SLOW])
def test_model_that_loads_or_cannot_be_looked_up_is_a_timeout(index):
    server = script(index, not_loaded)
    with pytest.raises(PyTritonClientTimeoutError, match=r"model 'm' \(version <latest>\) was not ready within 5 s$"):
        drive(wait_for_model("m", None, server.deadline(5)), server)


def test_a_wait_gives_up_when_no_server_was_reached_from_the_start():
    server = Script(is_model_ready=REFUSED)
    with pytest.raises(PyTritonClientUnreachableError, match=r"within 10 s: refused.*init_timeout_s") as error:
        drive(wait_for_model("m", None, server.deadline(300), unreachable_s=10), server)
    assert error.value.__cause__ is None
    assert 1010 <= server.now < 1012


def test_a_wait_gives_up_at_the_first_answer_of_another_program():
    other = PyTritonClientConnectionError("status 404")
    other.is_other_program = True
    server = Script(other)
    with pytest.raises(PyTritonClientUnreachableError, match=r"^no Triton server answers: status 404\."):
        drive(wait_for_model("m", None, server.deadline(300), unreachable_s=10), server)
    assert server.methods == ["is_model_ready"]
    drive(wait_for_model("m", None, (server := Script(other, other, True)).deadline(300)), server)


def test_a_server_that_was_reached_once_is_waited_for():
    server = Script(SLOW, *[REFUSED] * 200, True)
    drive(wait_for_model("m", None, server.deadline(300), unreachable_s=10), server)
    assert server.now > 1010


def test_only_a_first_use_without_a_timeout_of_its_own_gives_up_early():
    assert session().unreachable_s == 10
    assert session(init_timeout_s=300).unreachable_s == math.inf


def test_model_that_becomes_ready_after_it_was_looked_up_is_ready():
    server = Script(False, False, False, [], True)
    drive(wait_for_model("m", None, server.deadline(0.066)), server)
    assert server.methods[-2:] == ["get_model_repository_index", "is_model_ready"]


def test_unreachable_server_is_no_missing_model():
    server = Script(is_model_ready=REFUSED, get_model_repository_index=REFUSED, is_server_ready=REFUSED)
    with pytest.raises(PyTritonClientTimeoutError, match="refused"):
        drive(wait_for_model("m", None, server.deadline(5)), server)


def test_a_server_that_wants_a_token_to_say_whether_it_is_ready_is_not_waited_for():
    server = Script(REFUSED, PyTritonClientInferenceServerError("This API is restricted, expecting header 't'"))
    with pytest.raises(PyTritonClientInferenceServerError, match="'t'; give the client the server's access_token"):
        drive(wait_for_model("m", None, server.deadline(math.inf)), server)


def first_use(server, version=None, timeout_s=300):
    drive(wait_for_model("m", version, server.deadline(timeout_s), fail_if_missing=True), server)


def entries(*names, **fields):
    return [{"name": name, "version": "1", "state": "READY", **fields} for name in names]


@pytest.mark.parametrize(
    ("index", "hint"),
    [
        (entries("n", "other", "M2"), r"did you mean 'M2'\? The server has 'M2', 'n', 'other'\. To wait for a model"),
        (entries("other"), r"on the server: The server has 'other'\."),
        (entries(*(f"other{number}" for number in range(10))), r"'other7' and 2 more\."),
        (RESTRICTED, r"on the server: Request for unknown model: 'm' is not found\."),
    ],
)
def test_first_use_of_an_unknown_model_fails_within_five_seconds_with_what_the_server_has(index, hint):
    server = script(index)
    with pytest.raises(PyTritonClientModelUnavailableError, match=hint):
        first_use(server)
    assert 1003 < server.now <= 1005


def test_first_use_of_an_unknown_version_fails_with_those_that_there_are():
    with pytest.raises(PyTritonClientModelUnavailableError, match=r"\(version 3\) .* server has version 1 of it"):
        first_use(script(entries("m")), "3")


@pytest.mark.parametrize(
    "server",
    [
        pytest.param(script([], not_loaded), id="it is loading, or was unloaded"),
        pytest.param(script([{"name": "m"}]), id="it is in the repository"),
        pytest.param(script([]), id="the server has no models yet"),
        pytest.param(script([], server_ready=False), id="the server loads other models"),
        pytest.param(script([], RESTRICTED), id="the server does not tell"),
    ],
)
def test_first_use_of_a_model_that_may_come_waits_for_it(server):
    asked = []

    def ready(call):
        asked.append(call)
        return server.now > 1100

    server.by_method["is_model_ready"] = ready
    first_use(server)
    assert len(asked) > 100


def test_first_use_of_a_server_that_was_seen_starting_waits_for_its_models():
    server = script(entries("other"))
    server.by_method["is_model_ready"] = lambda call: server.now > 1100 or (server.now < 1001 and raising(REFUSED))
    first_use(server)
    assert server.now > 1100


def test_a_model_is_missing_only_if_it_was_so_all_the_time():
    server = script(entries("other"))

    def config(call):
        return (not_loaded if 1003 < server.now < 1004 else no_model)(call)

    server.by_method["get_model_config"] = config
    with pytest.raises(PyTritonClientModelUnavailableError):
        first_use(server)
    assert 1007 < server.now < 1010


def raising(error):
    raise error


def test_a_long_wait_is_logged_after_five_seconds_and_then_every_ten(caplog):
    server = script([])
    with pytest.raises(PyTritonClientModelUnavailableError):
        drive(wait_for_model("m", None, server.deadline(40)), server)
    pattern = r"still waiting for model 'm' \(version <latest>\) after (\d+) s, for up to (\d+) s more: (.*)"
    told = [re.fullmatch(pattern, text).groups() for text in caplog.messages]
    assert [int(elapsed_s) for elapsed_s, _, _ in told] == pytest.approx([5, 15, 25, 35], abs=1)
    assert {int(elapsed_s) + int(left_s) for elapsed_s, left_s, _ in told} == {40}
    assert {why for _, _, why in told} == {"the server has no such model"}
    assert {(record.name, record.levelname) for record in caplog.records} == {("pytriton.client", "WARNING")}


def test_the_log_says_why_a_server_is_waited_for(caplog):
    server = Script(is_server_live=lambda call: server.now > 1006 or raising(REFUSED), is_server_ready=True)
    drive(wait_for_server(server.deadline(math.inf)), server)
    assert caplog.messages == ["still waiting for the server after 5 s: the last attempt failed with: refused"]


def test_the_log_tells_how_long_a_server_that_was_not_reached_is_waited_for(caplog):
    server = Script(is_model_ready=lambda call: raising(REFUSED))
    with pytest.raises(PyTritonClientUnreachableError):
        drive(wait_for_model("m", None, server.deadline(300), unreachable_s=10), server)
    (told,) = caplog.messages
    assert told.endswith(" after 5 s, for up to 5 s more: the last attempt failed with: refused")


def test_a_short_wait_is_not_logged(caplog):
    drive(wait_for_model("m", None, (server := Script(*[False] * 5, True)).deadline(10)), server)
    assert caplog.messages == []


def test_configuration_is_parsed():
    config = drive(fetch_model_config("m", "2", Deadline(10)), server := Script(CONFIG))
    assert (config.model_name, config.max_batch_size) == ("m", 4)
    assert server.calls[0].arguments == {"model_name": "m", "model_version": "2"}


@pytest.mark.parametrize("answer", [{}, [], {"name": "m", "parameters": 1}])
def test_configuration_that_cannot_be_understood_is_said_to_be_so(answer):
    with pytest.raises(PyTritonModelConfigError):
        drive(fetch_model_config("m", None, Deadline(10)), Script(answer))


def test_no_call_is_made_after_the_deadline():
    server = Script()
    deadline = server.deadline(1)
    server.sleep(1)
    with pytest.raises(PyTritonClientTimeoutError, match="of 1 s to call get_model_config"):
        drive(fetch_model_config("m", None, deadline), server)


def test_model_state_is_that_of_the_asked_version():
    server = Script([{"name": "m", "version": "1", "state": "READY"}, {"name": "m", "version": "2"}])
    assert drive(model_state("m", "1", Deadline(10)), server) is ModelState.READY


# One client's session.

X = np.ones(2, np.float32)


def test_a_connection_lost_before_the_configuration_came_is_made_again_until_the_deadline():
    server = Script(REFUSED, REFUSED, CONFIG)
    assert drive(fetch_model_config("m", None, server.deadline(10)), server).model_name == "m"
    server = Script(get_model_config=REFUSED)
    with pytest.raises(PyTritonClientConnectionError, match="refused"):
        drive(fetch_model_config("m", None, server.deadline(2)), server)
    assert 1001.8 < server.now <= 1002
    with pytest.raises(PyTritonClientTlsError):
        drive(fetch_model_config("m", None, server.deadline(2)), Script(PyTritonClientTlsError("not trusted")))


def test_first_inference_waits_and_fetches_and_later_ones_do_not():
    model, server = session(), Script(False, True, CONFIG, Result(), Result())
    drive(infer(model, X), server)
    drive(infer(model, X), server)
    assert server.methods == ["is_model_ready"] * 2 + ["get_model_config", "infer", "infer"]


def test_inference_sends_what_was_asked_for():
    server = Script(Result())
    drive(infer(session(config(), True, inference_timeout_s=2.5), x=X, parameters={"p": 1}, headers={"h": 2}), server)
    (call,) = server.calls
    assert (call.method, call.timeout_s, call.headers) == ("infer", 2.5, {"h": "2"})
    assert call.arguments["parameters"] == {"p": 1}
    assert [output.name for output in call.arguments["outputs"]] == ["x"]
    (tensor,) = call.arguments["inputs"]
    assert (tensor.name, tensor.shape, tensor.datatype) == ("x", (1, 2), "FP32")


def test_sample_loses_its_batch_axis_and_a_batch_keeps_it():
    model, server = session(config(), True), Script(Result(), Result())
    assert drive(infer(model, X), server)["x"].shape == (2,)
    assert drive(infer(model, X[np.newaxis], sample=False), server)["x"].shape == (1, 2)


def test_request_ids_count_up_from_zero():
    model, server = session(config(), True), Script(Result(), Result(), Result())
    for _ in range(3):
        drive(infer(model, X), server)
    assert [call.arguments["request_id"] for call in server.calls] == ["0", "1", "2"]


def test_known_configuration_is_not_fetched():
    server = Script(True, Result())
    drive(infer(session(config()), X), server)
    assert server.methods == ["is_model_ready", "infer"]


def test_configuration_is_fetched_once():
    model, server = session(), Script(True, CONFIG)
    assert drive(model.model_config(), server) is drive(model.model_config(), server)


@pytest.mark.parametrize(
    ("inputs", "options"),
    [((X,), {"x": X}), ((X,), {"parameters": {"a": 1.5}}), ((X,), {"headers": {"a": None}})],
    ids=["mixed", "parameters", "headers"],
)
def test_wrong_arguments_are_refused_before_the_server_is_asked(inputs, options):
    with pytest.raises(PyTritonClientValueError):
        drive(infer(session(), *inputs, **options), Script())


def test_wrong_inputs_are_refused_before_inference():
    server = Script(True, CONFIG)
    with pytest.raises(PyTritonClientInputError):
        drive(infer(session(), X.astype(int)), server)
    assert "infer" not in server.methods


def test_batch_on_a_model_without_batching_is_refused():
    with pytest.raises(PyTritonClientModelDoesntSupportBatchingError, match="infer_sample"):
        drive(infer(session(config(batching=False), True), X, sample=False), Script())


def test_decoupled_model_is_refused():
    with pytest.raises(PyTritonClientInferenceServerError, match="decoupled"):
        drive(infer(session(config(decoupled=True), True), X), Script())


def test_errors_of_inference_pass():
    with pytest.raises(PyTritonClientConnectionError, match="refused"):
        drive(infer(session(config(), True), X), Script(REFUSED))


@pytest.mark.parametrize(
    "use",
    [
        lambda model: infer(model, X),
        lambda model: model.model_config(),
        lambda model: model.wait_for_model(1),
        lambda model: model.wait_for_server(1),
        lambda model: model.load_model(None, None),
        lambda model: model.unload_model(),
        lambda model: model.start(),
    ],
)
def test_closed_session_refuses_everything(use):
    model = session(config(), True)
    model.close()
    with pytest.raises(PyTritonClientClosedError, match="'m' is closed"):
        drive(use(model), Script())


def test_unloading_forgets_what_was_known():
    model, server = session(config(), True), Script(None, True, CONFIG, Result())
    drive(model.unload_model(), server)
    drive(infer(model, X), server)
    assert server.methods == ["unload_model", "is_model_ready", "get_model_config", "infer"]


def test_loading_is_bounded_by_the_init_timeout():
    server = Script(None)
    drive(session(init_timeout_s=123).load_model("{}", {"file:1/a": b"x"}), server)
    (call,) = server.calls
    assert call.timeout_s == 123
    assert call.arguments == {"model_name": "m", "config": "{}", "files": {"file:1/a": b"x"}}


@pytest.mark.parametrize("timeout", ["init_timeout_s", "inference_timeout_s"])
def test_timeouts_must_be_positive(timeout):
    with pytest.raises(PyTritonClientValueError, match=timeout):
        session(**{timeout: 0})


def test_an_attempt_that_the_deadline_cut_short_does_not_hide_why_those_before_it_failed():
    server = Script(PyTritonClientConnectionError("refused for a reason"), lambda _: late())

    def late():
        server.sleep(5)
        raise PyTritonClientTimeoutError("no answer")

    with pytest.raises(PyTritonClientTimeoutError, match="refused for a reason"):
        drive(wait_for_server(server.deadline(1)), server)
