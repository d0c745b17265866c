"""The native proxy's sources with sanitizers, beside a small server and workers that misbehave (``tests/native``)."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "native"
ROUNDS = 20_000
BATCHES = 1_000
FLIGHTS = 300

pytestmark = pytest.mark.skipif(
    not (shutil.which("cmake") and shutil.which("c++")), reason="there is no cmake or no C++ compiler"
)


def build(folder: Path, target: str, sanitizers: str) -> Path:
    configure = ["cmake", "-S", SOURCE, "-B", folder, f"-DPYTRITON_SANITIZE={sanitizers}"]
    for command in (configure, ["cmake", "--build", folder, "--target", target, "--parallel", "2"]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / target


def run(program: Path, *arguments: object) -> None:
    """In the program's folder, as a socket's path must be short."""
    command = [program, *map(str, arguments)]
    done = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_damaged_frames_are_refused_and_nothing_beyond_them_is_read(tmp_path):
    program = build(tmp_path, "damaged_frames", "address,undefined")
    for seed in range(3):
        run(program, seed, ROUNDS)


def test_threads_share_nothing_without_a_lock_whatever_a_worker_does(tmp_path):
    program = build(tmp_path, "stress", "thread")
    for seed in range(2):
        run(program, ".", seed, BATCHES)


@pytest.mark.parametrize("sanitizers", ["thread", "address,undefined"])
def test_flights_share_nothing_without_a_lock_and_leave_nothing_in_memory(tmp_path, sanitizers):
    run(build(tmp_path, "flights", sanitizers), 1, FLIGHTS)
