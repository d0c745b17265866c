"""What fuzzers start from, and what they found: no target finds a fault in it. ``make fuzz`` goes on from there."""

import subprocess
import sys

import pytest

from tests.fuzz.targets import CORPUS, TARGETS

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_finds_no_fault_in_its_corpus(name):
    inputs = sorted(map(str, (CORPUS / name).iterdir()))
    assert inputs
    command = [sys.executable, "-m", "tests.fuzz.targets", name, *inputs]  # the targets change their process
    done = subprocess.run(command, cwd=CORPUS.parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == inputs
