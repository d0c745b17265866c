"""Processes of other users are told from our own at both ends of a socket."""

import logging
import os
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pytriton.python_proxy.memory import close_to_others
from pytriton.wire.channel import PeerGoneError
from pytriton.wire.connect import WrongUserError, connect, unexpected_peer
from pytriton.worker.context import Binding, TritonContext
from pytriton.worker.instance import Instance

NOBODY = 65534
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")

# Of another user: the first connects and waits for the end, the second listens until its input ends.
CALLER = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
    caller.connect(sys.argv[1])
    print(os.getpid(), len(caller.recv(100)))
"""
LISTENER = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print("listening", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder():
    """A folder that everybody may enter and write."""
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


class Idle:
    """An engine that nobody reaches."""

    def close(self):
        pass

    def quiet_s(self):
        return 1.0


def test_a_process_of_the_same_user_is_none():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        assert unexpected_peer(ours) is None


@only_root
def test_a_worker_refuses_another_users_process_and_says_so(folder, caplog, bind):
    caplog.set_level(logging.WARNING, "pytriton")
    path = folder / "m.0"
    config = bind(print)
    instance = Instance(str(path), Binding(print, config, TritonContext()), Idle(), lambda: pytest.fail("was accepted"))
    path.chmod(0o777)
    try:
        command = [sys.executable, "-c", CALLER, str(path), str(NOBODY)]
        pid, received = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert int(received) == 0
        assert f"refused process {pid} of user {NOBODY}: only this user and root may connect" in caplog.text
        assert not instance.is_connected()
        assert instance.is_alive()
    finally:
        instance.close()


@only_root
def test_a_proxy_refuses_another_users_worker_at_once(folder):
    path = folder / "m.0"
    command = [sys.executable, "-c", LISTENER, str(path), str(NOBODY)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout.readline() == "listening\n"
        with pytest.raises(WrongUserError, match=f"{path} is served by process {listener.pid} of user {NOBODY}"):
            connect(str(path), {}, timeout_s=1000.0)
        listener.stdin.close()


@only_root
def test_a_proxy_that_is_roots_trusts_the_owner_of_the_sockets_folder(folder):
    os.chown(folder, NOBODY, -1)
    command = [sys.executable, "-c", LISTENER, str(folder / "m.0"), str(NOBODY)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout.readline() == "listening\n"
        with pytest.raises(PeerGoneError) as error:  # this listener does not answer
            connect(str(folder / "m.0"), {}, timeout_s=0.1)
        assert not isinstance(error.value, WrongUserError)
        listener.stdin.close()


def test_shared_memory_is_taken_from_other_users(tmp_path):
    path = f"/dev/shm/pytriton-test-{os.getpid()}"
    maps = tmp_path / "maps"
    maps.write_text(
        f"7f00-7f01 rw-s 00000000 00:1a 5  {path}\n7f02-7f03 rw-s 00000000 00:1a 6  /dev/shm/none (deleted)\n"
    )
    with open(path, "x"):
        try:
            os.chmod(path, 0o644)
            close_to_others(str(maps))
            assert os.stat(path).st_mode & 0o777 == 0o600
        finally:
            os.unlink(path)
