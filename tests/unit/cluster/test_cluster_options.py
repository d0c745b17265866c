"""What the addresses and limits of remote workers and proxies may be."""

import pytest

pytest.importorskip("zmq")

from pytriton.cluster.options import ProxyListener, WorkerListener
from pytriton.cluster.worker import WorkerOptions
from pytriton.exceptions import PyTritonBadParameterError

LOCAL = "tcp://127.0.0.1:5600"


@pytest.mark.parametrize("options", [ProxyListener, WorkerListener, WorkerOptions])
@pytest.mark.parametrize("heartbeat_s", [0, -1.0, float("inf"), float("nan"), "2", None, True])
def test_a_heartbeat_is_a_positive_number_of_seconds(options, heartbeat_s):
    assert options(LOCAL, heartbeat_s=3).heartbeat_s == 3
    with pytest.raises(PyTritonBadParameterError, match=r"^heartbeat_s must be a positive number of seconds, got "):
        options(LOCAL, heartbeat_s=heartbeat_s)


@pytest.mark.parametrize("credits", [0, -1, 1.5, "2", True])
def test_credits_are_a_positive_integer_or_none(credits):
    assert WorkerOptions(LOCAL).credits is None
    with pytest.raises(PyTritonBadParameterError, match=r"^credits must be an integer of at least 1, or None, got "):
        WorkerOptions(LOCAL, credits=credits)
