"""What fuzzers start from, and what they found: no target finds a fault in it. ``make fuzz`` goes on from there."""

import pytest

from tests.fuzz.targets import CORPUS, TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_finds_no_fault_in_its_corpus(name):
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for path in inputs:
        TARGETS[name](path.read_bytes())
