"""The members of tritonclient that are not public, and that this project uses: a new version may change them."""

from __future__ import annotations

from tritonclient.utils import shared_memory

from pytriton.client.tritonclients import is_region, region_fields

PATIENCE_S = 30.0


def test_a_handle_of_shared_memory_tells_its_region():
    handle = shared_memory.create_shared_memory_region("region", "/pytriton-test-handle", 24)
    try:
        assert is_region(handle)
        assert region_fields(handle) == {"name": "region", "byte_size": 24, "key": "/pytriton-test-handle"}
    finally:
        shared_memory.destroy_shared_memory_region(handle)


def test_other_handles_are_told_apart():
    assert not is_region({"name": "region"})
    assert region_fields({"name": "region"}) is None
