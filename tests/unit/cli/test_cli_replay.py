"""Which answers of a replay differ from the recorded ones, and what the commands refuse."""

import asyncio
import math
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from pytriton.cli.app import app
from pytriton.cli.errors import TargetError
from pytriton.cli.load import count_error
from pytriton.cli.replay import Replay, Report, Tolerance, differences, speed_of
from pytriton.client.exceptions import PyTritonClientError
from pytriton.recording import RecordedRequest
from pytriton.recording.format import MAGIC

EXACT = Tolerance()
NAN = math.nan


def recorded(*responses, **details):
    return RecordedRequest("m", 1, 0.0, 0.1, responses=[{"y": np.array(each)} for each in responses], **details)


def told(before, now, tolerance=EXACT):
    return [*differences(recorded(before), [{"y": np.array(now)}], tolerance)]


@pytest.mark.parametrize(
    "same", [[1.5, NAN, math.inf], [0.0], [], [b"a", b""], [True, False], np.zeros((2, 0)), np.float16(1), [-0.0]]
)
def test_equal_outputs_do_not_differ(same):
    as_object = np.array(same, object) if any(isinstance(each, bytes) for each in np.ravel(same).tolist()) else same
    assert told(as_object, as_object) == []


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        ([1.0, 2.0], [1.0, 2.5], "2.5 in place of 2.0 at [1], 0.5 apart at most; 1 of 2 elements"),
        ([1.0, NAN], [1.0, 2.0], "at [1], 0 apart at most; 1 of 2 elements"),
        ([1, 2], [1, 3], "3 in place of 2 at [1]; 1 of 2 elements"),
        ([True], [False], "1 of 1 elements"),
        ([1.0], [1.0, 2.0], "float64 of shape (2,) in place of float64 of shape (1,)"),
        (np.float32([1]), [1.0], "float64 of shape (1,) in place of float32"),
        (np.array([b"a", b"b"], object), np.array([b"a", b"c"], object), "b'c' in place of b'b' at [1]; 1 of 2"),
        (np.array(3.0), np.array(4.0), "at [], 1 apart"),
        ([math.inf], [-math.inf], "inf apart at most; 1 of 1 elements"),
        (np.float16([60000]), np.float16([-60000]), "1.2e+05 apart at most"),
        ([1e308], [-1e308], "inf apart at most"),
    ],
)
def test_an_output_that_differs_is_told_with_its_place(before, now, text):
    ((name, found),) = told(before, now)
    assert name == "y"
    assert text in found


def test_tolerances_are_for_floating_point_numbers():
    assert told([100.0, 0.0], [101.0, 0.001], Tolerance(0.02, 0.01)) == []
    assert told([100.0], [103.0], Tolerance(0.02, 0.01)) != []
    assert told([100], [101], Tolerance(0.5, 50)) != []


def test_streams_are_compared_response_by_response():
    request = recorded([1.0], [2.0])
    assert [*differences(request, [{"y": np.array([1.0])}], EXACT)] == [("", "1 responses in place of 2")]
    ((name, text),) = differences(request, [{"y": np.array([1.0])}, {"y": np.array([3.0])}], EXACT)
    assert (name, text.startswith("response 1: ")) == ("y", True)


def test_an_output_that_is_missing_and_a_failure_that_is_gone_are_told():
    assert [*differences(recorded([1.0]), [{}], EXACT)] == [("y", "it is missing")]
    assert [*differences(recorded([1.0]), [{"y": None}], EXACT)] == [("y", "it is missing")]
    ((name, text),) = differences(recorded(error="no"), [{}], EXACT)
    assert (name, "failed before: no" in text) == ("", True)


def test_a_report_is_the_same_only_if_requests_were_sent():
    assert not Report().is_same
    assert Report(requests=1).is_same
    assert not Report(requests=1, different=1).is_same
    failed = Report(requests=1)
    count_error(failed.errors, PyTritonClientError("first\nsecond"))
    assert (failed.is_same, dict(failed.errors)) == (False, {"first": 1})


class Server:
    """Answers each call at the next turn of the event loop, with the outputs of a function."""

    def __init__(self, answer):
        self.answer, self.calls = answer, []

    async def call(self, call):
        self.calls.append(call.arguments)
        await asyncio.sleep(0)
        return SimpleNamespace(as_numpy=self.answer(call.arguments).get)

    async def close(self):
        pass


@pytest.fixture
def replayed(monkeypatch):
    """Replays requests to a scripted server; returns the report."""

    def run(requests, server, speed=1.0):
        monkeypatch.setattr("pytriton.cli.replay.open_async_transport", lambda *_: server)
        options = {"model": None, "version": None, "tolerance": EXACT, "shown": 10, "timeout_s": 5.0}
        replay = Replay(url="localhost", speed=speed, connections=16, access_token=None, tls=None, **options)
        return asyncio.run(replay.run(requests))

    return run


def test_the_requests_of_a_sequence_keep_their_order_however_fast_they_follow_each_other(replayed):
    requests = [
        RecordedRequest("m", 1, number * 2e-5, id=str(number), sequence=(number % 3, False, False))
        for number in range(600)
    ]
    server = Server(lambda _: {})
    assert replayed(requests, server).answered == 600
    for key in range(3):
        ids = [int(each["request_id"]) for each in server.calls if each["parameters"]["sequence_id"] == key]
        assert ids == list(range(key, 600, 3))


def test_a_request_that_the_protocol_cannot_carry_fails_alone(replayed):
    def answer(arguments):
        if arguments["request_id"] == "1":
            raise TypeError("a parameter of 65 bits")
        return {}

    report = replayed([RecordedRequest("m", 1, 0.0, id=str(number)) for number in range(3)], Server(answer))
    assert (report.answered, dict(report.errors)) == (2, {"a parameter of 65 bits": 1})


def test_what_clients_called_a_request_does_not_control_the_terminal(replayed):
    request = RecordedRequest("m", 1, 0.0, id="a\n\x1b[2J", responses=[{"y": np.array([1])}])
    (difference,) = replayed([request], Server(lambda _: {"y": np.array([2])})).first
    assert difference.id == "a??[2J"


@pytest.mark.parametrize("text", ["0", "-1", "fast", "nan", ""])
def test_a_speed_is_a_number_above_0_or_max(text):
    with pytest.raises(TargetError, match="--speed"):
        speed_of(text)
    assert (speed_of("max"), speed_of("2.5")) == (math.inf, 2.5)


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_what_is_no_recording_is_told(tmp_path):
    (tmp_path / "other.ptr").write_bytes(b"PK")
    for arguments, text in {
        ("replay", "localhost"): "give files and then the URL",
        ("replay", str(tmp_path / "none.ptr"), "localhost"): "No such file",
        ("replay", str(tmp_path / "other.ptr"), "localhost"): "no recording",
        ("record", "localhost", "--model", "m", "-o", "a.ptr", "--stop"): "give one of them",
        ("record", "grpc://localhost", "--model", "m", "--stop"): "give the URL of the app",
        ("record", "localhost", "--model", "m", "-o", "a.ptr", "--share", "2"): "share must be",
    }.items():
        result = run(*arguments)
        assert text in result.output
        assert result.exit_code in (1, 2)


def test_an_empty_recording_is_no_success(tmp_path):
    (tmp_path / "empty.ptr").write_bytes(MAGIC)
    assert run("replay", str(tmp_path / "empty.ptr"), "127.0.0.1:1").exit_code == 1
