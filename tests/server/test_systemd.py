"""What a service of systemd's ``Type=notify`` tells it, as its socket receives it."""

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.server.processes import Host

pytestmark = pytest.mark.either_proxy

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "pytriton.service"
WATCHDOG_S = 1.5


@pytest.fixture
def manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(60)
        yield receiver


def test_systemd_hears_of_the_start_of_a_server_that_answers_and_of_the_stop(manager, tmp_path, free_config):
    environment = {**os.environ, "NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6))}
    host = Host(tmp_path, free_config, environment=environment)
    try:
        assert manager.recv(1000) == b"READY=1\nSTATUS=Serving double, fatal, forking, gated, stopper"
        assert manager.recv(1000) == b"WATCHDOG=1"
        os.kill(host.server, signal.SIGSTOP)
        drain(manager)  # until the server's silence is the service's
        os.kill(host.server, signal.SIGCONT)
        assert manager.recv(1000) == b"WATCHDOG=1"
        host.end(signal.SIGTERM)
        assert host.process.returncode == 0
        messages = drain(manager)
        assert messages[-1] == b"STOPPING=1\nSTATUS=Finishing requests\nEXTEND_TIMEOUT_USEC=30000000"
        host.assert_nothing_left()
    finally:
        host.kill()


def drain(manager):
    """Read messages until none has come for as long as the watchdog would wait."""
    messages = []
    manager.settimeout(2 * WATCHDOG_S)
    try:
        while True:
            messages.append(manager.recv(1000))
    except TimeoutError:
        return messages
    finally:
        manager.settimeout(60)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit_is_valid_and_exposes_little(tmp_path):
    unit = tmp_path / "pytriton.service"
    lines = UNIT.read_text().replace("/opt/models/venv/bin/pytriton", "/bin/true").splitlines()
    unit.write_text("\n".join(line for line in lines if not line.startswith(("User=", "Group=", "After=", "Wants="))))
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    assert (verified.returncode, verified.stderr) == (0, "")
    security = ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit]
    assert subprocess.run(security, capture_output=True).returncode == 0
