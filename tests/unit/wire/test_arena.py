"""Regions of an arena: where they lie, that they are backed by memory, and that the memory is given back."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytriton.wire.arena import (
    GROW_BYTES,
    PAGE_BYTES,
    RESERVE_BYTES,
    TRIM_AFTER_BATCHES,
    TRIM_MIN_BYTES,
    Arena,
    ArenaFullError,
    limit_of,
    map_shared,
)
from pytriton.wire.tensors import ALIGN

MIB = 1 << 20


@pytest.fixture
def arena():
    arena = Arena()
    yield arena
    arena.close()


@pytest.fixture
def small():
    """An arena with room for 16 MiB."""
    arena = Arena(16 * MIB)
    yield arena
    arena.close()


def resident_bytes(arena):
    return os.fstat(arena.fd).st_blocks * 512


def test_an_arena_reserves_addresses_and_no_memory(arena):
    assert len(arena.memory) == RESERVE_BYTES
    assert resident_bytes(arena) == 0


def test_an_arena_is_left_out_of_core_dumps(arena):
    address = np.frombuffer(arena.memory, np.uint8).ctypes.data
    mappings = Path("/proc/self/smaps").read_text()
    flags = mappings.partition(f"\n{address:x}-")[2].partition("VmFlags:")[2].partition("\n")[0]
    assert "dd" in flags.split()


def test_regions_follow_each_other_aligned(arena):
    assert [arena.allocate(size) for size in (1, ALIGN, ALIGN + 1, 7)] == [0, ALIGN, 2 * ALIGN, 4 * ALIGN]


def test_a_gap_is_used_again_where_it_is_large_enough(arena):
    first, second, third = (arena.allocate(4 * ALIGN) for _ in range(3))
    arena.free(second)
    assert arena.allocate(4 * ALIGN + 1) == third + 4 * ALIGN
    assert arena.allocate(3 * ALIGN) == second
    assert arena.allocate(ALIGN) == second + 3 * ALIGN
    arena.free(first)
    assert arena.allocate(4 * ALIGN) == first


def test_a_free_arena_starts_from_the_beginning(arena):
    for _ in range(10):
        offset = arena.allocate(MIB)
        assert offset == 0
        arena.free(offset)


def test_unknown_regions_are_not_freed(arena):
    arena.allocate(4 * ALIGN)
    for offset in (ALIGN, 5, 2**64 - 1, 4 * ALIGN):
        arena.free(offset)
    assert arena.allocate(ALIGN) == 4 * ALIGN


@given(st.lists(st.tuples(st.integers(1, 5 * ALIGN), st.booleans()), max_size=60), st.randoms(use_true_random=False))
def test_regions_never_overlap(steps, random):
    arena = Arena(MIB)
    held = {}
    for size, release in steps:
        if release and held:
            offset = random.choice(sorted(held))
            arena.free(offset)
            del held[offset]
        offset = arena.allocate(size)
        assert offset % ALIGN == 0
        assert all(offset + size <= other or other + taken <= offset for other, taken in held.items())
        held[offset] = size
    arena.close()


def test_a_batch_that_does_not_fit_is_refused_and_says_what_to_do(small):
    held = small.allocate(10 * MIB)
    with pytest.raises(ArenaFullError, match=rf"{7 * MIB} bytes: 1 earlier ones are still referenced; copy what"):
        small.allocate(7 * MIB)
    assert small.allocate(6 * MIB) == 10 * MIB
    with pytest.raises(ArenaFullError):
        small.allocate(1)
    small.free(held)
    assert small.allocate(7 * MIB) == 0


def test_a_batch_larger_than_the_whole_arena_is_refused(small):
    with pytest.raises(ArenaFullError):
        small.allocate(16 * MIB + 1)
    assert small.allocate(16 * MIB) == 0


def test_a_shortage_of_memory_refuses_the_batch_and_no_later_one(arena, monkeypatch):
    def short_of_memory(fd, offset, size):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", short_of_memory)
        with pytest.raises(ArenaFullError, match="no memory for a batch that ends at byte 128: Cannot allocate memory"):
            arena.allocate(100)
    assert arena.allocate(100) == 0
    assert resident_bytes(arena) >= 100


def test_memory_exists_up_to_the_end_of_the_last_region(arena):
    for size in (1, GROW_BYTES, 5 * MIB + 1, 3):
        offset = arena.allocate(size)
        assert resident_bytes(arena) >= offset + size
        arena.memory[offset + size - 1] = 1
    assert resident_bytes(arena) <= offset + size + GROW_BYTES


def test_the_peer_sees_what_is_written(arena):
    offset = arena.allocate(3 * PAGE_BYTES)
    peer = map_shared(arena.fd)
    arena.memory[offset + PAGE_BYTES] = 7
    assert peer[offset + PAGE_BYTES] == 7
    peer[offset] = 8
    assert arena.memory[offset] == 8


def allocate_often(arena, size=ALIGN):
    for _ in range(2 * TRIM_AFTER_BATCHES):
        arena.free(arena.allocate(size))


def test_memory_of_a_large_batch_is_given_back_after_many_small_ones(arena):
    live = arena.allocate(MIB)
    arena.memory[live : live + MIB] = b"\x05" * MIB
    arena.free(arena.allocate(TRIM_MIN_BYTES + 4 * MIB))
    assert resident_bytes(arena) > TRIM_MIN_BYTES
    allocate_often(arena)
    assert resident_bytes(arena) <= 2 * MIB
    assert arena.memory[live : live + MIB] == b"\x05" * MIB


def test_memory_of_a_large_batch_is_given_back_after_many_that_need_no_region(arena):
    arena.free(arena.allocate(TRIM_MIN_BYTES + 4 * MIB))
    for _ in range(2 * TRIM_AFTER_BATCHES):
        arena.skip()
    assert resident_bytes(arena) == 0


def test_memory_below_a_live_region_is_kept(arena):
    below = arena.allocate(TRIM_MIN_BYTES + 4 * MIB)
    live = arena.allocate(MIB)
    arena.memory[live : live + MIB] = b"\x06" * MIB
    arena.free(below)
    allocate_often(arena)
    assert arena.memory[live : live + MIB] == b"\x06" * MIB
    arena.free(live)
    allocate_often(arena)
    assert resident_bytes(arena) <= MIB


def test_memory_given_back_can_be_used_again(arena):
    large = TRIM_MIN_BYTES + 4 * MIB
    arena.free(arena.allocate(large))
    allocate_often(arena)
    offset = arena.allocate(large)
    assert resident_bytes(arena) >= large
    arena.memory[offset + large - 1] = 9
    assert arena.memory[offset + large - 1] == 9


def test_memory_in_steady_use_is_kept(arena):
    size = TRIM_MIN_BYTES + 4 * MIB
    allocate_often(arena, size)
    assert resident_bytes(arena) >= size


def test_a_limit_on_address_space_makes_the_reservation_smaller():
    script = (
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({6 << 30},) * 2)\n"
        "from pytriton.wire.arena import Arena\n"
        "arena = Arena()\n"
        "print(len(arena.memory), arena.allocate(1 << 20))\n"
    )
    assert run(script).split() == [str(4 << 30), "0"]


def test_no_room_even_for_the_smallest_reservation_raises_and_leaves_no_descriptor():
    script = (
        "import os, resource\n"
        "from pytriton.wire.arena import Arena\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20,) * 2)\n"
        "before = os.listdir('/proc/self/fd')\n"
        "try:\n"
        "    Arena()\n"
        "except OSError as error:\n"
        "    print(error.strerror)\n"
        "print(os.listdir('/proc/self/fd') == before)\n"
    )
    told = "File too large; RLIMIT_FSIZE (ulimit -f) is 1048576 bytes, raise it"
    assert run(script).splitlines() == [told, "True"]


def test_an_arena_that_does_not_fit_into_the_address_space_names_the_limit():
    script = (
        "import os, resource\n"
        "from pytriton.wire.arena import Arena, map_shared\n"
        "arena = Arena(1 << 30)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30,) * 2)\n"
        "for make in (lambda: Arena(), lambda: map_shared(arena.fd)):\n"
        "    try:\n"
        "        make()\n"
        "    except OSError as error:\n"
        "        print(error.strerror)\n"
    )
    told = f"Cannot allocate memory; RLIMIT_AS (ulimit -v) is {1 << 30} bytes, raise it"
    assert run(script).splitlines() == [told] * 2


def test_no_limit_is_named_where_none_explains_an_error():
    assert limit_of(OSError(errno.EACCES, "no")) == ""
    assert limit_of(OSError(errno.EFBIG, "no")) == ""


def test_closing_leaves_the_arrays_valid_and_then_no_descriptor():
    before = len(os.listdir("/proc/self/fd"))
    arena = Arena()
    fd = arena.fd
    view = memoryview(arena.memory)[:4]
    view[0] = 3
    arena.close()
    arena.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    del arena
    assert view[0] == 3
    del view
    assert len(os.listdir("/proc/self/fd")) <= before


def run(script):
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
