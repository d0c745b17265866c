from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytriton.worker.failures import LIMIT_BYTES, sendable

TEXTS = st.text(st.characters(exclude_categories=[]), max_size=50)  # lone surrogates too


@pytest.mark.parametrize("text", ["", "ValueError: 100 % wrong\n", "zażółć ☃", "x" * LIMIT_BYTES])
def test_a_text_that_fits_stays_as_it_is(text):
    assert sendable(text) == text


@given(TEXTS, st.integers(1, 1000))
def test_the_percent_encoded_form_is_bounded_and_can_be_decoded(text, times):
    sent = sendable(text * times)
    assert "\0" not in sent
    assert len(quote(sent, safe="".join(map(chr, range(32, 127))).replace("%", ""))) <= LIMIT_BYTES + len(" [...] ")


@pytest.mark.parametrize("character", ["x", "\n", "☃", "\U0001f600"])
def test_of_a_long_text_beginning_and_end_remain(character):
    sent = sendable("begin " + character * LIMIT_BYTES + " end")
    assert sent.startswith("begin " + character)
    assert sent.endswith(character + " end")
    assert " [...] " in sent


def test_what_cannot_be_encoded_is_replaced():
    assert sendable("nul \0, lone \ud800") == "nul \\0, lone ?"
