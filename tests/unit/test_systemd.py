"""Messages to systemd, as a socket of it receives them."""

import os
import socket

import pytest

from pytriton.systemd import ServiceManager


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    address = str(tmp_path / "notify") if request.param == "path" else f"@pytriton-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + address[1:] if address[0] == "@" else address)
        receiver.settimeout(10)
        yield receiver, address


def test_the_service_says_when_it_is_ready_alive_and_stopping(manager):
    receiver, address = manager
    service = ServiceManager({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())})
    assert service.watchdog_s == 3.0
    service.ready("Serving a, b")
    assert receiver.recv(1000) == b"READY=1\nSTATUS=Serving a, b"
    service.alive()
    assert receiver.recv(1000) == b"WATCHDOG=1"
    service.stopping(30.0)
    assert receiver.recv(1000) == b"STOPPING=1\nSTATUS=Finishing requests\nEXTEND_TIMEOUT_USEC=30000000"


@pytest.mark.parametrize(
    "environment", [{}, {"WATCHDOG_USEC": "1"}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_PID": "1"}]
)
def test_nobody_watches_without_a_time_for_this_process(manager, environment):
    receiver, address = manager
    if "WATCHDOG_PID" in environment:
        environment = environment | {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"}
    elif environment.get("WATCHDOG_USEC") in ("0", "x"):
        environment = environment | {"NOTIFY_SOCKET": address}
    service = ServiceManager(environment)
    assert service.watchdog_s is None
    service.alive()
    ServiceManager({"NOTIFY_SOCKET": address}).ready("after it")
    assert receiver.recv(1000).startswith(b"READY=1")


def test_a_manager_that_has_gone_is_no_error(tmp_path):
    service = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nothing")})
    service.ready("ready")
    service.stopping(1.0)
