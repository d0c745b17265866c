"""The parent process of a server: ends it on command, or when the hosting process has died; leaves nothing behind.

:mod:`pytriton.server.process` runs it as a script that imports the standard library alone::

    guard.py <pattern of the server's shared-memory files> <workspace> <server> <argument>...

Standard input is a pipe from the hosting process: ``interrupt`` asks the server to exit, ``kill`` kills it. The hosting
process is gone when the pipe has ended or, should children of it hold the pipe open, when its process has.
"""

import ctypes
import glob
import os
import select
import shutil
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PRCTL = ctypes.CDLL(None, use_errno=True).prctl


def main(shared_memory: str, workspace: str, arguments: list[str]) -> int:
    """Run a server to its end; returns its exit status, 128 + n if signal n ended it."""
    PRCTL(PR_SET_CHILD_SUBREAPER, 1)  # a dead server's stubs become our children
    wake, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the hosting process decides
    server = start(arguments)
    host = os.pidfd_open(os.getppid())
    host_gone, status = False, None
    while status is None:
        ready, _, _ = select.select([wake, *(() if host_gone else (0, host))], [], [])
        if 0 in ready or host in ready:
            command = os.read(0, 64) if 0 in ready else b""
            host_gone = not command
            os.kill(server, signal.SIGKILL if host_gone or b"kill" in command else signal.SIGINT)
        if wake in ready:
            os.read(wake, 4096)
            status = reap(server)
    kill_children()
    for path in glob.glob(shared_memory):
        os.unlink(path)
    if host_gone or host in select.select([host], [], [], 0)[0]:
        shutil.rmtree(workspace, ignore_errors=True)
    return status if status >= 0 else 128 - status


def start(arguments: list[str]) -> int:
    """Start the server; the kernel kills it if this process dies."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if os.getppid() == parent:
            os.execv(arguments[0], arguments)
    except OSError as error:
        print(f"{arguments[0]}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(127)


def reap(server: int) -> int | None:
    """Collect dead children; returns the server's exit status if it is among them."""
    status = None
    try:
        while True:
            pid, code = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return status
            if pid == server:
                status = os.waitstatus_to_exitcode(code)
    except ChildProcessError:
        return status


def kill_children() -> None:
    """Kill what the server left: its stubs, and theirs."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            for pid in file.read().split():
                os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
