"""Requests and answers of the systems whose models call models."""

import json

import composition
import payloads
import pytest

pytestmark = pytest.mark.thorough

SYSTEMS = ("ours", "loopback", "raw", "ray", "bentoml")
NUMBERS = [float(number) for number in range(composition.SMALL)]
ANSWERS = [
    NUMBERS,
    {"x": NUMBERS},
    {"model_name": "one", "outputs": [{"name": "x", "shape": [1, 16], "data": NUMBERS}]},
]


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_request_has_the_length_of_its_body_and_all_numbers(system):
    head, _, body = composition.request(system, 8080, "chain").partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert json.dumps(NUMBERS).encode() in body
    assert b"chain" in head.splitlines()[0]


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_the_numbers_that_were_sent_are_a_right_answer_in_each_protocol(answering, answer):
    port, answers = answering
    answers += [answer, json.loads(json.dumps(answer).replace("15.0", "16.0"))]
    composition.ask("ours", port)
    with pytest.raises(payloads.LoadError, match="ours answers"):
        composition.ask("ours", port)
