"""What a JSON text costs, told from its bytes."""

from __future__ import annotations

import json
import tracemalloc
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytriton.signature import json_texts
from pytriton.signature.json_texts import size_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def counted(value) -> tuple[int, int]:
    """How many lists and objects there are, and how many commas between members."""
    if not isinstance(value, (list, dict)):
        return 0, 0
    inner = [counted(each) for each in (value.values() if isinstance(value, dict) else value)]
    return 1 + sum(each[0] for each in inner), max(0, len(value) - 1) + sum(each[1] for each in inner)


@given(VALUES, st.booleans())
def test_what_is_in_texts_is_not_counted(value, is_ascii):
    containers, commas = counted(value)
    size = size_of(json.dumps(value, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass"))
    assert (size.containers, size.values) == (containers, containers + commas)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7])
@given(VALUES)
def test_blocks_end_anywhere(length, value):
    text = json.dumps(value).encode()
    whole = size_of(text)
    with patch.object(json_texts, "BLOCK_BYTES", length):
        assert size_of(text) == whole


@pytest.mark.parametrize(
    "text",
    [
        b"[%b1]" % (b"{}," * 9999),
        b"[%b1]" % (b"[]," * 9999),
        b"[%b1]" % (b"[[[[[[[[1]]]]]]]]," * 9999),
        b"[%b1]" % (b'{"a":1},' * 9999),
        b"[%b1]" % (b'{"a":{"b":{"c":"defg"}}},' * 9999),
        b"[%b1]" % (b"300," * 9999),
        b"[%b1]" % (b"1.5," * 9999),
        b"[%b1]" % (b'"ab",' * 9999),
        b'["%b",1]' % (b"a" * 9999 + "😀".encode()),
        "[{}1]".format('"😀",' * 9999).encode(),
        b"{%b}" % b",".join(b'"%d":1' % index for index in range(9999)),
    ],
)
def test_python_takes_no_more_memory_than_is_told(text):
    tracemalloc.start()
    try:
        value = json.loads(text)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert value
    assert taken <= size_of(text).tree_bytes + 1000
