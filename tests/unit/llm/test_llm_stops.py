"""Text in pieces: stop sequences across pieces, and pieces that are cut within a character."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytriton.llm.stops import StopSequences, TextDecoder

SETTINGS = settings(max_examples=300, deadline=None, derandomize=True)


def cut(text: str, sizes: list[int]) -> list[str]:
    pieces = []
    for size in sizes:
        pieces.append(text[:size])
        text = text[size:]
    return [*pieces, text]


@SETTINGS
@example("ababaaa", ["aa", "baaa"], [1, 5])
@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.integers(0, 5), max_size=12),
)
def test_the_text_before_the_sequence_that_is_complete_first_is_sent_however_it_is_cut(text, sequences, sizes):
    stops = StopSequences(sequences)
    sent = "".join(map(stops.cut, cut(text, sizes))) + stops.end()
    ends = [(text.find(each) + len(each), text.find(each)) for each in sequences if each in text]
    assert sent == (text[: min(ends)[1]] if ends else text)
    assert stops.found == bool(ends)


def test_only_what_may_become_a_sequence_is_held_back():
    stops = StopSequences(["</end>", "STOP"])
    assert [stops.cut(piece) for piece in ("one <", "b> ST", "EP ", "</en", "d> more", "more")] == [
        "one ",
        "<b> ",
        "STEP ",
        "",
        "",
        "",
    ]
    assert stops.found


@SETTINGS
@given(st.text(), st.lists(st.integers(0, 6), max_size=20))
def test_bytes_that_are_cut_anywhere_are_the_text(text, sizes):
    data, decoder, pieces = text.encode(), TextDecoder(), []
    for size in sizes:
        pieces.append(decoder.decode(data[:size]))
        data = data[size:]
    assert "".join([*pieces, decoder.decode(data), decoder.end()]) == text


def test_surrogates_that_are_cut_are_joined():
    decoder = TextDecoder()
    high, low = "\ud83d", "\ude00"
    assert [decoder.decode(piece) for piece in ("a" + high, low + "b", high + low)] == ["a", "😀b", "😀"]
    assert decoder.decode(low) + decoder.decode("x" + high) + decoder.end() == "\ufffdx\ufffd"


def test_what_is_no_text_is_replaced():
    decoder = TextDecoder()
    assert decoder.decode(b"a\xffb\xe2\x82") + decoder.end() == "a\ufffdb\ufffd"
