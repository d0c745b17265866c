import os
import subprocess
import sys

import processes
import pytest

pytestmark = pytest.mark.thorough

ROLLUP = """5581c0a000-7ffc0e000 ---p 00000000 00:00 0    [rollup]
Rss:                2048 kB
Pss:                1024 kB
Pss_Dirty:           512 kB
"""


@pytest.fixture
def child():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"1\n"  # the grandchild runs
        yield process
        process.stdin.close()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["/opt/bin/tritonserver", "--http-port=1"], "tritonserver"),
        (["/usr/bin/python3.11", "-I", "-S", "/x/guard.py", "y"], "guard.py"),
        (["python", "-c", "import x", "y"], "python -c"),
        (["python", "-c", "import x", "m-template"], "template"),
        (["python", "-m", "http.server"], "http.server"),
        (["python3"], "python3"),
        ([""], ""),
    ],
)
def test_a_process_is_named_after_its_program_or_script(arguments, name):
    assert processes.process_name(arguments) == name


def test_cpu_time_is_read_whatever_the_process_calls_itself():
    ticks = os.sysconf("SC_CLK_TCK")
    stat = f"7 (a) b (c) S 1 7 7 0 -1 0 1 2 3 4 {2 * ticks} {ticks} 9 9 20 0 1"
    assert processes.read_cpu_s(stat) == 3.0


def test_memory_is_read_in_bytes():
    assert processes.read_memory(ROLLUP) == processes.Memory(2 << 20, 1 << 20)


def test_a_process_that_is_gone_counts_nothing(child):
    child.communicate()
    assert processes.family(child.pid) == []
    assert processes.cpu_s([child.pid]) == {child.pid: 0.0}
    assert processes.memory(child.pid) == processes.Memory(0, 0)
    assert (processes.resident_bytes(child.pid), processes.open_files(child.pid)) == (0, 0)
    assert (processes.threads(child.pid), processes.open_sockets(child.pid)) == (0, 0)
    assert processes.shared_memory(child.pid) == set()
    assert processes.wait_gone([child.pid], 0) == []


def test_a_family_is_a_process_and_its_descendants_named_and_numbered(child):
    pids = processes.family(child.pid)
    assert (pids[0], len(pids)) == (child.pid, 2)
    assert list(processes.names(pids).values()) == ["host", "python -c"]
    assert list(processes.names([os.getpid(), *pids]).values())[1:] == ["python -c", "python -c #2"]
    assert set(pids) <= set(processes.descendants())


def test_a_living_process_has_memory_and_open_files(child):
    assert processes.memory(child.pid).rss_bytes >= processes.memory(child.pid).pss_bytes > 0
    assert processes.resident_bytes(child.pid) > 0
    assert processes.open_files(child.pid) >= 3


def counts(count, *steps):
    """A count of a process before its steps and after each; it is a fresh one, where no other thread runs."""
    program = "".join(f"{step}\nprint(flush=True)\ninput()\n" for step in ("import _thread, socket", *steps))
    found = []
    with subprocess.Popen([sys.executable, "-Ic", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        while process.stdout.readline():
            found.append(count(process.pid))
            process.stdin.write(b"\n")
            process.stdin.flush()
    return found


def test_a_socket_counts_until_it_is_closed_and_another_file_never():
    opened, closed = "a, b = socket.socket(), open('/dev/null')", "a.close()"
    before, during, after = counts(processes.open_sockets, opened, closed)
    assert (during - before, after - before) == (1, 0)


def test_a_thread_counts_while_it_runs():
    started = "lock = _thread.allocate_lock(); lock.acquire(); _thread.start_new_thread(lock.acquire, ())"
    assert counts(processes.threads, started) == [1, 2]


def test_waiting_for_the_end_returns_who_still_runs(child):
    pids = processes.family(child.pid)
    assert processes.wait_gone(pids, 0) == pids
    child.communicate()
    assert processes.wait_gone(pids, 30) == []
