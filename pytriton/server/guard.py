"""The guard, parent process of a server: ends it on command or when the hosting process has died, and cleans up.

:mod:`pytriton.server.process` runs it as a script, which imports the standard library alone::

    guard.py <pattern of the server's shared-memory files> <notes of its temporary folders> <workspace> [<descriptor>]

Standard input is a pipe from the hosting process. It brings the number of secrets and the length in bytes of what
follows, as a line, then the secrets and the server's arguments with NUL bytes between them. Then ``interrupt`` asks the
server to exit, and ``kill`` kills it. The end of the pipe or of the hosting process kills it, too. The exit status is
written to the descriptor: in a process that ignores SIGCHLD or waits for all its children, nobody else could tell it.
"""

import contextlib
import ctypes
import mmap
import os
import resource
import select
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.001
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# The server's parsers of JSON and HTTP recurse and allocate on the stack as deep as a request makes them. The stacks of
# threads are as large as the process's limit; only what they touch takes memory. docs/security.md has the figures.
STACK_BYTES, LEAST_STACK_BYTES = 1 << 30, 8 << 20
STACKS = 1024  # there must be room for so many; a server has 35 threads at first, and some for each model
STACK_PER_BODY_BYTE = 112  # what the worst JSON takes
PRCTL = ctypes.CDLL(None, use_errno=True).prctl


def main(shared_memory: str, notes: str, workspace: str, report: str = "") -> int:
    """Run a server to its end; returns its exit status, 128 + n if signal n ended it."""
    reset_signals()
    arguments, secrets = receive()
    PRCTL(PR_SET_CHILD_SUBREAPER, 1)  # a dead server's stubs become our children
    host = os.pidfd_open(os.getppid())
    if report:
        os.set_inheritable(int(report), False)
    try:
        status = watch(arguments, secrets, host)
    finally:
        kill_children()
        remove(shared_memory, notes)
        if is_gone(host):
            remove_folder(workspace)
    if report:
        with contextlib.suppress(OSError):  # the hosting process has gone
            os.write(int(report), b"%d" % status)
    return status


def reset_signals() -> None:
    """Undo what the hosting process had blocked or ignored when it started this one: both are inherited.

    SIGPIPE and SIGXFSZ stay ignored, by Python, here and in the server. As ``reset_inherited_signals`` in
    ``pytriton/signals.py``, which this script cannot import.
    """
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)  # the hosting process decides
    for number in signal.valid_signals() - {*ENDING, signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def watch(arguments: list[bytes], secrets: list[bytes], host: int) -> int:
    """Start a server, follow the commands of the hosting process, a pidfd, until the server's end; as :func:`main`."""
    wake, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # of stubs that the server's own children left
    server = start(arguments)
    ended = os.pidfd_open(server)  # the server's end does not depend on a signal
    host_gone, status = False, None
    while status is None:
        commands = () if host_gone else (0, host)
        ready, _, _ = select.select([wake, ended, *commands], [], [], POLL_S if secrets else None)
        if 0 in ready or host in ready:
            command = os.read(0, 64) if 0 in ready else b""
            host_gone = not command
            os.kill(server, signal.SIGKILL if host_gone or b"kill" in command else signal.SIGINT)
        if wake in ready:
            os.read(wake, 4096)
        if wake in ready or ended in ready:
            status = reap(server)
        if secrets and status is None and has_read_arguments(server):
            conceal(server, secrets)
            secrets = []
    return status if status >= 0 else 128 - status


def receive() -> tuple[list[bytes], list[bytes]]:
    """Read the server's arguments and the secrets among them; exits if the hosting process has died already."""
    with open(0, "rb", buffering=0, closefd=False) as pipe:  # commands have to stay in the pipe
        try:
            secrets, size = map(int, pipe.readline().split())
            text = b""
            while len(text) < size:
                text += pipe.read(size - len(text)) or sys.exit(1)
        except ValueError:
            sys.exit(1)
    items = text.split(b"\0")
    return items[secrets:], items[:secrets]


def has_read_arguments(server: int) -> bool:
    """Whether the server has read its arguments, which it does before it starts threads."""
    return int(stat(server)[17]) > 1


def conceal(server: int, secrets: list[bytes]) -> None:
    """Overwrite secrets at the ends of the server's arguments, where ``ps`` of any user would show them."""
    try:
        start, end = map(int, stat(server)[45:47])
        with open(f"/proc/{server}/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            text = memory.read(end - start)
            for secret in secrets:
                text = text.replace(b"=%s\0" % secret, b"=%s\0" % (b"*" * len(secret)))
            memory.seek(start)
            memory.write(text)
        failure = "it is still there" if any(b"=%s\0" % secret in command_line(server) for secret in secrets) else ""
    except OSError as error:
        failure = str(error)
    if failure:
        with contextlib.suppress(OSError):  # the hosting process may have died
            print(f"the access token cannot be removed from the server's command line: {failure}", flush=True)


def stat(pid: int) -> list[bytes]:
    """The fields of a process's status from the third on, as in ``man proc_pid_stat``."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def command_line(pid: int) -> bytes:
    """The arguments of a process as all users see them, each with a NUL byte at its end."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()


def start(arguments: list[bytes]) -> int:
    """Start the server; the kernel kills it if this process dies."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in ENDING:
            signal.signal(number, signal.SIG_DFL)
        enlarge_stacks()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if os.getppid() == parent:
            os.execv(arguments[0], arguments)
    except OSError as error:
        print(f"{os.fsdecode(arguments[0])}: {error.strerror}", file=sys.stderr, flush=True)
    finally:  # else the child would go on as a second guard
        os._exit(127)


def enlarge_stacks() -> None:
    """Give the threads of the program that this process executes large stacks, as far as limits and memory allow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    least = LEAST_STACK_BYTES if soft == resource.RLIM_INFINITY else soft  # without a limit, threads get 2 MiB
    size = STACK_BYTES if hard == resource.RLIM_INFINITY else min(STACK_BYTES, hard)
    while size > least and not is_room_for(size):
        size //= 2
    size = max(size, least)
    resource.setrlimit(resource.RLIMIT_STACK, (size, hard))
    if size < STACK_BYTES:
        print(
            f"the server's threads have stacks of {size >> 20} MiB instead of {STACK_BYTES >> 20} MiB, because of "
            "ulimit or vm.overcommit_memory: a request with more than "
            f"{size // STACK_PER_BODY_BYTE >> 10} KiB of JSON can end the server",
            flush=True,
        )


def is_room_for(size: int) -> bool:
    """Whether the kernel lets as many stacks of this size be reserved."""
    reserved: list[mmap.mmap] = []
    missing = at_once = (
        STACKS  # a mapping takes some us, so there are few; the kernel refuses one larger than its memory
    )
    while missing and at_once:
        try:
            reserved.append(mmap.mmap(-1, at_once * size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            missing -= at_once
        except (OSError, OverflowError):
            at_once //= 2
        at_once = min(at_once, missing)
    for stacks in reserved:
        stacks.close()
    return not missing


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
    """Kill the children that the server left, such as its stubs, and their children."""
    killed = True
    while killed:  # their children become ours
        killed = False
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            children = [int(pid) for pid in file.read().split()]
        for pid in children:
            with contextlib.suppress(PermissionError):  # it has become another user's
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                killed = True


def remove(shared_memory: str, notes: str) -> None:
    """Remove the files that match, and the folders that were noted, less those of other users."""
    import glob  # as below: the server starts some ms sooner without these

    for path in glob.glob(shared_memory):
        with contextlib.suppress(OSError):
            os.unlink(path)
    with contextlib.suppress(OSError), open(notes, "rb") as file:
        for folder in file.read().split(b"\0")[:-1]:
            remove_folder(os.fsdecode(folder))


def remove_folder(path: str) -> None:
    """Remove a folder with all that it holds, as far as that is possible."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def is_gone(host: int) -> bool:
    """Whether the hosting process has died, or has closed the pipe."""
    poll = select.poll()
    poll.register(0, 0)  # for the end of the pipe alone
    poll.register(host, select.POLLIN)
    return bool(poll.poll(0))


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))  # the hosting process waits; the interpreter would take 10 ms to finalize
