"""``serialize_string_tensor`` of the first protocol."""

import numpy as np
import pytest

from pytriton.compat.tensorrtserver.api import InferenceServerException, serialize_string_tensor


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.array([b"ab", b""], dtype=object), b"\x02\0\0\0ab\0\0\0\0"),
        (np.array(["ż", "a"]), b"\x02\0\0\0\xc5\xbc\x01\0\0\0a"),
        (np.array([[b"a", b"bc"], [b"", b"d"]]), b"\x01\0\0\0a\x02\0\0\0bc\0\0\0\0\x01\0\0\0d"),
        (np.array([[b"a", b"b"], [b"c", b"d"]], order="F").T, b"\x01\0\0\0a\x01\0\0\0c\x01\0\0\0b\x01\0\0\0d"),
        (np.array([12, 1.5, np.bytes_(b"x\0y"), np.str_("é")], dtype=object),
         b"\x02\0\0\x0012\x03\0\0\x001.5\x03\0\0\0x\0y\x02\0\0\0\xc3\xa9"),
        (np.array(b"one", dtype=object), b"\x03\0\0\0one"),
    ],
)  # fmt: skip
def test_each_element_follows_its_length(given, expected):
    found = serialize_string_tensor(given)
    assert (found.dtype, found.ndim) == (np.uint8, 1)
    assert found.tobytes() == expected


@pytest.mark.parametrize(
    "given", [[b"a"], b"a", np.array([1]), np.array([True]), np.array([], dtype=object), np.array(["a"])[:0]]
)
def test_what_holds_no_strings_is_refused(given):
    with pytest.raises(InferenceServerException, match="string"):
        serialize_string_tensor(given)
