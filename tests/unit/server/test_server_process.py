"""A scripted server under its guard: its output and exit status arrive, and nothing outlives its host."""

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pytriton.server.backends import LIBRARY
from pytriton.server.installation import PRELOADED
from pytriton.server.process import GUARD, TAIL_LINES, ServerProcess
from tests.server.processes import command_line, is_alive, wait_for

TIMEOUT_S = 30.0


class Launch:
    """Starts scripts as servers, each with a workspace and shared-memory files."""

    def __init__(self, folder):
        self.folder = folder
        self.variables = {}
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        (self.workspace / "model").write_text("x")
        self.shared_memory = [folder / "shm-1", folder / "shm-2"]
        for path in (*self.shared_memory, folder / "other"):
            path.write_text("x")
        self.exits = queue.Queue()
        self.started = []

    def script(self, *lines, trap=""):
        """An executable that sets its traps, writes its process id to ``pid`` and does these lines."""
        path = self.folder / "server"
        path.write_text("\n".join(["#!/bin/sh", trap, f"echo $$ > {self.folder}/pid", *lines, ""]))
        path.chmod(0o755)
        return str(path)

    def arguments(self):
        """Of ServerProcess, less what is asked from it."""
        return {
            "environment": {"PATH": os.environ["PATH"], **self.variables},
            "shared_memory": str(self.folder / "shm-*"),
            "notes": self.folder / "notes",
            "workspace": self.workspace,
        }

    def start(self, *arguments, **options):
        self.started.append(ServerProcess(arguments, **self.arguments(), on_exit=self.exits.put, **options))
        return self.started[-1]

    def pid(self, name="pid"):
        """A process id that a script has written."""
        path = self.folder / name
        wait_for(lambda: path.exists() and path.read_text().endswith("\n"), name, TIMEOUT_S)
        return int(path.read_text())

    def status(self):
        return self.exits.get(timeout=TIMEOUT_S)


@pytest.fixture
def launch(tmp_path):
    launch = Launch(tmp_path)
    yield launch
    for process in launch.started:
        process.kill()
        assert process.wait(TIMEOUT_S)
        process._guard.wait()


FOREVER = "sleep 1000 & wait"


def test_output_and_exit_status_arrive(launch, capfd):
    process = launch.start(launch.script("echo out; echo err >&2; exit 3"))
    assert launch.status() == 3
    assert process.wait(0.0)
    assert process.killed_by() is None
    assert not process.is_alive()
    assert capfd.readouterr().out == "out\nerr\n"


def test_what_a_server_leaves_is_removed_before_it_counts_as_ended(launch):
    states = queue.Queue()
    process = launch.start(
        launch.script("exit 3"), remove=lambda: states.put((process.is_alive(), launch.exits.empty()))
    )
    assert process.wait(TIMEOUT_S)
    assert states.get_nowait() == (True, True)
    assert launch.status() == 3


def test_arguments_and_environment_reach_the_server(launch, capfd):
    launch.start(launch.script('for a in "$@"; do echo "<$a>"; done; cat; env'), "a b", "", "--x=$HOME 'y'")
    assert launch.status() == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[:3] == ["<a b>", "<>", "<--x=$HOME 'y'>"]  # and nothing from its standard input
    assert f"PATH={os.environ['PATH']}" in lines
    assert not any(line.startswith("HOME=") for line in lines)


def test_a_server_killed_by_a_signal_has_the_status_of_a_shell(launch):
    process = launch.start(launch.script(FOREVER))
    os.kill(launch.pid(), signal.SIGSEGV)
    assert launch.status() == 128 + signal.SIGSEGV
    assert process.wait(TIMEOUT_S)
    assert process.killed_by() == signal.SIGSEGV
    assert f"(exit status {128 + signal.SIGSEGV}: SIGSEGV)" in str(process.failure("the server has ended"))


def test_a_missing_executable_is_named(launch):
    process = launch.start(str(launch.folder / "missing"))
    assert launch.status() == 127
    assert str(process.failure("the server did not start")) == (
        "the server did not start (exit status 127); its last lines:\n"
        f"{launch.folder}/missing: No such file or directory"
    )


def test_an_executable_that_may_not_be_run_is_named(launch):
    script = launch.script("exit 0")
    os.chmod(script, 0o600)
    process = launch.start(script)
    assert launch.status() == 127
    assert f"{script}: Permission denied" in str(process.failure("the server did not start"))


THREADED = f"""#!{sys.executable}
import os, sys, threading
from pathlib import Path
print(sys.argv[1:], flush=True)
Path(__file__).with_name("pid").write_text(f"{{os.getpid()}}\\n")
threading.Thread(target=threading.Event().wait).start()
"""


def threaded(launch):
    """A server that has read its arguments when it starts a thread."""
    path = launch.folder / "server"
    path.write_text(THREADED)
    path.chmod(0o755)
    return str(path)


def test_secrets_vanish_from_command_lines_once_the_server_has_read_them(launch, capfd):
    process = launch.start(
        threaded(launch), "--a=b:c=s3cret", "--b=s3cretary", "--c=other", secrets={"s3cret", "other"}
    )
    pid = launch.pid()
    hidden = ["--a=b:c=******", "--b=s3cretary", "--c=*****"]
    wait_for(lambda: command_line(pid)[2:5] == hidden, "the secrets to be overwritten", TIMEOUT_S)
    assert not {"s3cret", "other"} & {*"=".join(command_line(process._guard.pid)).split("=")}
    process.kill()
    launch.status()
    assert capfd.readouterr().out == "['--a=b:c=s3cret', '--b=s3cretary', '--c=other']\n"


def test_without_the_right_to_write_the_servers_memory_a_line_says_so(launch, capfd):
    """Where the kernel lets nobody do that, the file cannot be opened, as here: the process is no more."""
    script = f"""
import runpy, subprocess
guard = runpy.run_path({str(GUARD)!r})
with subprocess.Popen(["true"]) as gone:
    gone.wait()
guard["conceal"](gone.pid, [b"s3cret"])
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    output = capfd.readouterr().out
    assert output.startswith("the access token cannot be removed from the server's command line: ")
    assert "s3cret" not in output


def test_a_guard_without_a_host_ends(launch):
    command = [sys.executable, "-I", "-S", str(GUARD), "none", "none", str(launch.workspace)]
    assert subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == 1


def test_only_the_last_lines_are_kept(launch):
    process = launch.start(launch.script(f"i=0; while [ $i -lt {3 * TAIL_LINES} ]; do echo line $i; i=$((i+1)); done"))
    launch.status()
    text = str(process.failure("it has ended"))
    assert text.splitlines()[1:] == [f"line {i}" for i in range(2 * TAIL_LINES, 3 * TAIL_LINES)]


def test_the_failure_tells_the_errors_if_there_are_any(launch):
    process = launch.start(launch.script("echo I1 fine; echo E1 bad; echo more; echo 'an Error too'; exit 1"))
    launch.status()
    assert str(process.failure("what")).splitlines()[1:] == ["E1 bad", "an Error too"]


def test_output_that_is_no_text_does_not_hurt(launch, capfd):
    process = launch.start(launch.script(r"printf 'E \377\376 end\n'; printf 'no newline'"))
    assert launch.status() == 0
    assert "E \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} end" in str(process.failure("what"))
    assert capfd.readouterr().out.endswith("no newline\n")


def test_an_interrupt_asks_the_server_to_exit_by_itself(launch, capfd):
    process = launch.start(launch.script(FOREVER, trap="trap 'echo bye; exit 5' INT"))
    launch.pid()
    process.interrupt()
    assert launch.status() == 5
    assert capfd.readouterr().out == "bye\n"


def test_a_kill_needs_no_help_of_the_server_and_takes_its_children_along(launch):
    script = launch.script(
        f"sleep 1000 & echo $! > {launch.folder}/child",
        f"setsid sh -c 'echo $$ > {launch.folder}/distant; exec sleep 1000' &",
        f"(sh -c 'echo $$ > {launch.folder}/orphan; exec sleep 1000' &)",
        FOREVER,
        trap="trap '' INT TERM HUP",
    )
    process = launch.start(script)
    family = [launch.pid(name) for name in ("pid", "child", "distant", "orphan")]
    process.interrupt()
    assert process.is_alive()
    process.kill()
    assert launch.status() == 128 + signal.SIGKILL
    assert not any(map(is_alive, family))


def test_what_the_server_leaves_behind_is_ended_and_removed(launch):
    launch.start(launch.script(f"setsid sleep 1000 & echo $! > {launch.folder}/child", "exit 0"))
    assert launch.status() == 0
    assert not is_alive(launch.pid("child"))
    assert not any(path.exists() for path in launch.shared_memory)
    assert (launch.folder / "other").exists()
    assert launch.workspace.exists()  # its owner lives and removes it


def test_what_cannot_be_removed_does_not_keep_the_rest(launch):
    foreign = launch.folder / "shm-0"
    foreign.mkdir()  # which nobody can unlink
    launch.start(launch.script("exit 7"))
    assert launch.status() == 7
    assert foreign.exists()
    assert not any(path.exists() for path in launch.shared_memory)


NOBODY = 65534
AS_NOBODY = """
import contextlib, ctypes, glob, mmap, os, resource, select, shutil, signal, sys
guard, user = compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), int(sys.argv[2])
del sys.argv[1:3]
os.setgroups([])
os.setgid(user)
os.setuid(user)
exec(guard)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_users_file_does_not_keep_a_guard_that_is_not_root_from_removing_the_rest():
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to others
        folder = Path(name)
        folder.chmod(0o1777)  # as /dev/shm
        own, foreign, workspace = (folder / name for name in ("shm-own", "shm-foreign", "workspace"))
        for file in (own, foreign):
            file.touch()
        workspace.mkdir()
        for path in (own, workspace):
            os.chown(path, NOBODY, NOBODY)
        command = [sys.executable, "-c", AS_NOBODY, GUARD, str(NOBODY), str(folder / "shm-*"), "none", str(workspace)]
        server = b"/bin/sleep\0" + b"1000"
        guard = subprocess.run(command, input=b"0 %d\n%s" % (len(server), server), check=False, timeout=TIMEOUT_S)
        assert guard.returncode == 128 + signal.SIGKILL
        assert [path.name for path in folder.iterdir()] == ["shm-foreign"]


TEMPORARY = f"""#!{sys.executable}
import ctypes, sys
make = ctypes.CDLL(None).mkdtemp
make.restype = ctypes.c_char_p
for name in ("python_env_", "folder", "other_"):
    folder = make(b"/tmp/" + name.encode() + b"XXXXXX").decode()
    open(folder + "/file", "w").close()
    print(folder, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(
    not LIBRARY.with_name(PRELOADED).is_file(), reason="without a C++ compiler, nobody notes the folders"
)
@pytest.mark.parametrize("ending", ["its own end", "the guard's death"])
def test_temporary_folders_of_the_server_are_removed_and_those_of_others_stay(launch, capfd, ending):
    path = launch.folder / "server"
    path.write_text(TEMPORARY.replace("sys.stdin.read()", "import time; time.sleep(1000)" if "guard" in ending else ""))
    path.chmod(0o755)
    launch.variables["LD_PRELOAD"] = str(LIBRARY.with_name(PRELOADED))
    process = launch.start(str(path))
    output = ""

    def folders():
        nonlocal output
        output += capfd.readouterr().out
        return [Path(line) for line in output.splitlines()]

    wait_for(lambda: len(folders()) == 3, "the folders", TIMEOUT_S)
    if "guard" in ending:
        os.kill(process._guard.pid, signal.SIGKILL)
    launch.status()
    *tritons, other = folders()
    try:
        assert not any(folder.exists() for folder in tritons)
        assert other.exists()
    finally:
        shutil.rmtree(other)


def test_commands_after_the_end_do_nothing(launch):
    process = launch.start(launch.script("exit 0"))
    launch.status()
    process.interrupt()
    process.kill()
    assert process.wait(0.0)


def test_waiting_ends_at_the_timeout(launch):
    process = launch.start(launch.script(FOREVER))
    assert not process.wait(0.0)
    assert process.is_alive()


def test_signals_for_the_terminal_do_not_reach_the_server(launch):
    """Ctrl+C is for the hosting process; the guard and its server are in a session of their own."""
    process = launch.start(launch.script(FOREVER))
    assert os.getsid(launch.pid()) == process._guard.pid != os.getsid(0)


def test_the_guards_death_ends_the_server(launch):
    process = launch.start(launch.script("exec sleep 1000"))
    server = launch.pid()
    os.kill(process._guard.pid, signal.SIGKILL)
    assert launch.status() == -signal.SIGKILL
    assert process.killed_by() == signal.SIGKILL
    wait_for(lambda: not is_alive(server), "the server to end", TIMEOUT_S)
    assert not any(path.exists() for path in launch.shared_memory)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_guard_leaves_the_decision_to_the_host(launch, number):
    process = launch.start(launch.script(FOREVER, trap="trap 'exit 6' INT"))
    launch.pid()
    os.kill(process._guard.pid, number)
    assert is_alive(process._guard.pid)
    process.interrupt()
    assert launch.status() == 6


HOST = """
import json, os, sys, time
from pathlib import Path
from pytriton.server.process import ServerProcess
arguments, options, child = json.loads(sys.argv[1])
options.update({name: Path(options[name]) for name in ("workspace", "notes")})
process = ServerProcess(arguments, **options, on_exit=print)
pid = os.fork() if child else 0
if child and pid == 0:
    time.sleep(1000)
print(process._guard.pid, pid, flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("child", [False, True], ids=["alone", "a child holds the pipe"])
def test_the_hosts_death_ends_the_server_and_removes_everything(launch, child):
    script = launch.script(f"setsid sleep 1000 & echo $! > {launch.folder}/child", FOREVER, trap="trap '' INT")
    options = {**launch.arguments(), "workspace": str(launch.workspace), "notes": str(launch.folder / "notes")}
    described = json.dumps([[script], options, child])
    with subprocess.Popen([sys.executable, "-c", HOST, described], stdout=subprocess.PIPE, text=True) as host:
        guard, forked = map(int, host.stdout.readline().split())
        family = [launch.pid(), launch.pid("child"), guard]
        host.kill()
    try:
        wait_for(lambda: not any(map(is_alive, family)), "all processes to end", TIMEOUT_S)
        assert not launch.workspace.exists()
        assert not any(path.exists() for path in launch.shared_memory)
        assert not forked or is_alive(forked)
    finally:
        if forked:
            os.kill(forked, signal.SIGKILL)


SIGNALS = {
    "blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
    "SIGCHLD ignored": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "all ignored": "[signal.signal(n, signal.SIG_IGN) for n in signal.valid_signals() - {9, 19}]",
}


def signal_set(pid, name):
    """Without those that the C library keeps for itself: they may have been ignored before, and nothing undoes it."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(name)]
    return {number for number in signal.valid_signals() if int(line.split()[1], 16) >> (number - 1) & 1}


@pytest.mark.parametrize("setting", SIGNALS)
def test_what_the_host_blocked_or_ignored_hides_no_end_and_does_not_reach_the_server(launch, setting):
    options = {**launch.arguments(), "workspace": str(launch.workspace), "notes": str(launch.folder / "notes")}
    described = json.dumps([[launch.script("exec sleep 1000")], options, False])
    script = f"import signal; {SIGNALS[setting]}\n{HOST}"
    with subprocess.Popen([sys.executable, "-u", "-c", script, described], stdout=subprocess.PIPE, text=True) as host:
        guard, _ = map(int, host.stdout.readline().split())
        server = launch.pid()
        blocked, ignored = signal_set(server, "SigBlk"), signal_set(server, "SigIgn")
        os.kill(server, signal.SIGKILL)
        told = host.stdout.readline()
        host.kill()
    assert not blocked
    assert ignored <= {signal.SIGPIPE, signal.SIGXFSZ}
    assert told == f"{128 + signal.SIGKILL}\n"
    assert not is_alive(guard)
    assert not is_alive(server)


def test_the_guard_needs_the_standard_library_alone():
    modules = "{'numpy', 'site', 'pytriton'} & {*sys.modules}"
    script = f"import runpy, sys; runpy.run_path(sys.argv[1]); print({modules})"
    command = [sys.executable, "-I", "-S", "-c", script, str(GUARD)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.parametrize(
    ("limits", "stack_mib", "told"),
    [
        ({}, 1024, False),
        ({"RLIMIT_STACK": (-1, -1)}, 1024, False),  # threads would get 2 MiB
        ({"RLIMIT_STACK": (8 << 20, 64 << 20)}, 64, True),
        ({"RLIMIT_STACK": (8 << 20, -1), "RLIMIT_AS": (40 << 30, 40 << 30)}, 32, True),
        ({"RLIMIT_STACK": (8 << 20, -1), "RLIMIT_AS": (4 << 30, 4 << 30)}, 8, True),
    ],
)
def test_stacks_are_as_large_as_the_limits_allow(launch, limits, stack_mib, told):
    script = os.fsencode(launch.script("ulimit -Ss"))
    setting = "".join(f"resource.setrlimit(resource.{name}, {value});" for name, value in limits.items())
    limited = f"import os, resource, sys; {setting} os.execv(sys.executable, sys.argv[1:])"
    guard = [
        sys.executable,
        "-I",
        "-S",
        str(GUARD),
        str(launch.folder / "shm-*"),
        str(launch.folder / "notes"),
        str(launch.workspace),
    ]
    with subprocess.Popen(
        [sys.executable, "-c", limited, *guard], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        process.stdin.write(f"0 {len(script)}\n{os.fsdecode(script)}")
        process.stdin.flush()
        lines = process.stdout.read().splitlines()  # ends with the server, while the guard's input is open
    assert lines[-1] == str(stack_mib << 10)
    assert any(f"stacks of {stack_mib} MiB instead of 1024 MiB" in line for line in lines) is told
