"""Requests and answers of the systems that serve files of models."""

import payloads
import pytest
import saved

pytestmark = pytest.mark.thorough

SYSTEMS = {name for served, _ in saved.SERVED.values() for name in served}
ANSWERS = [
    [[0, 0], {"label": [0, 0]}, {"predictions": [0, 0]}],
    [[{"result": 0}, {"result": 0}], {"predictions": [{"label": 0}, {"label": 0}]}],
    [{"model_name": "iris", "outputs": [{"name": "label", "datatype": "INT64", "shape": [2, 1], "data": [0, 0]}]}],
]


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_a_request_has_the_length_of_its_body_and_all_rows(system):
    for rows in (1, 1000):
        head, _, body = saved.request(system, 8080, rows).partition(b"\r\n\r\n")
        assert f"Content-Length: {len(body)}".encode() in head
        assert body.count(b"5.1, 3.5, 1.4, 0.2") == rows


@pytest.mark.parametrize("answer", [answer for group in ANSWERS for answer in group], ids=str)
def test_a_label_for_each_row_is_a_right_answer_in_each_protocol(answering, answer):
    port, answers = answering
    answers += [answer, answer]
    saved.ask("ours", 2, port)
    with pytest.raises(payloads.LoadError, match="ours answers"):
        saved.ask("ours", 3, port)
