from __future__ import annotations

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytriton.proxy.types import Request, RequestBatch, Response, ResponseBatch


def batch_of(rows: list[int]) -> RequestBatch:
    x = np.arange(sum(rows) * 2, dtype=np.float32).reshape(-1, 2)
    return RequestBatch({"x": x, "id": np.arange(sum(rows))}, rows, [Request() for _ in rows])


@pytest.mark.parametrize("kind", [Request, Response])
def test_request_and_response_are_dicts(kind):
    x, y = np.zeros(1), np.ones(1)
    tensors = kind({"x": x})
    tensors["y"] = y
    assert isinstance(tensors, dict)
    assert {**tensors} == dict(tensors) == {"x": x, "y": y}
    assert tensors["y"] is y
    assert list(tensors) == list(tensors.keys()) == ["x", "y"]
    assert len(tensors) == 2
    assert "x" in tensors
    del tensors["x"]
    assert list(tensors.data.items()) == [("y", y)]
    assert "x" not in tensors


@pytest.mark.parametrize("kind", [Request, Response])
def test_data_is_the_dict_and_can_be_replaced(kind):
    tensors = kind({"x": np.zeros(1)})
    tensors.data["y"] = np.ones(1)
    assert list(tensors) == ["x", "y"]
    tensors.data = {"z": np.ones(1)}
    assert list(tensors) == ["z"]
    tensors.data = tensors.data
    assert list(tensors) == ["z"]


DETAILS = {"request_id": "7", "deadline": 1.5, "correlation_id": 3, "sequence_start": True, "sequence_end": True}


def told(request):
    """What a request says beside its inputs."""
    return request.parameters, request.requested_output_names, {name: getattr(request, name) for name in DETAILS}


@pytest.mark.parametrize(
    "copied",
    [
        lambda request: request.copy(),
        copy.copy,
        lambda request: request | {},
        copy.deepcopy,
        lambda request: pickle.loads(pickle.dumps(request)),
    ],
    ids=["copy", "copy.copy", "|", "deepcopy", "pickle"],
)
def test_copies_of_a_request_keep_what_it_says_and_are_dicts_of_their_own(copied):
    request = Request({"x": np.zeros(2)}, {"a": 1}, None, ["y"], **DETAILS)
    other = copied(request)
    assert isinstance(other, Request)
    assert other == request
    assert told(other) == told(request)
    other["y"] = np.ones(1)
    assert list(request) == ["x"]


def test_copies_for_other_processes_have_neither_span_nor_connection():
    request = Request({"x": np.zeros(2)}, span=object())
    request._details = object(), 0
    assert request.copy().span is request.span
    for other in (copy.deepcopy(request), pickle.loads(pickle.dumps(request))):
        assert other.span is None
        assert not other.is_cancelled()


def test_a_union_has_the_inputs_of_both_and_the_right_ones_win():
    request = Request({"x": np.zeros(1)}, {"a": 1})
    both = request | {"x": np.ones(1), "y": np.ones(1)}
    assert (both["x"].tolist(), list(both), both.parameters) == ([1.0], ["x", "y"], {"a": 1})
    assert request["x"].tolist() == [0.0]
    assert list({"y": np.ones(1)} | request) == ["y", "x"]
    request |= {"y": np.ones(1)}
    assert (type(request), list(request)) == (Request, ["x", "y"])


def test_requests_are_equal_if_their_arrays_are():
    request = Request({"x": np.arange(3)}, {"a": 1})
    assert request == {"x": np.arange(3)}
    assert request == Request({"x": np.arange(3)})
    assert request != {"x": np.arange(4)}
    assert request != {"x": np.arange(3), "y": np.arange(3)}
    assert request != [request]
    assert [Request({"x": np.zeros(3)}), request].index(request) == 1


def test_request_has_no_parameters_unless_given():
    assert Request({}).parameters == {}
    assert Request({}, {"a": 1}).parameters == {"a": 1}
    assert Request().data == {}


class Told:
    """What one request says beside its tensors."""

    def __init__(self, **told):
        self.told, self.looks = told, 0

    def of(self, request):
        self.looks += 1
        made = Request(requested_output_names=["y"])
        details = {name: getattr(made, name) for name in Request.__slots__ if name != "_details"}
        return details | self.told

    def is_cancelled(self, request):
        return request == 1


def test_received_requests_look_their_attributes_up_when_they_are_read():
    details = Told(request_id="a", deadline=3.0)
    first, second = Request.received(details, 2)
    assert (first.is_cancelled(), second.is_cancelled(), details.looks) == (False, True, 0)
    assert (first.request_id, first.deadline, first.parameters, first.requested_output_names) == ("a", 3.0, {}, ["y"])
    assert details.looks == 1
    second.deadline = 4.0  # stays
    assert (second.request_id, second.deadline) == ("a", 4.0)
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = first.other


def test_a_copy_of_a_received_request_has_its_attributes_and_its_connection():
    (_, request) = Request.received(Told(request_id="a"), 2)
    assert (request.copy().request_id, request.copy().is_cancelled()) == ("a", True)
    assert pickle.loads(pickle.dumps(request)).request_id == "a"


def test_untraced_request_has_a_span_that_does_nothing():
    with Request().traced_span("work"):
        pass


def test_repr_shows_the_tensors():
    assert repr(Request({"x": np.zeros(1)}, {"a": 1})) == "Request(data={'x': array([0.])}, parameters={'a': 1})"
    assert repr(Response({"y": np.zeros(1)})) == "Response(data={'y': array([0.])})"


def test_requests_of_a_batch_are_views_of_its_arrays():
    batch = batch_of([2, 1])
    whole = batch.columns()
    assert batch[0]["x"].tolist() == [[0, 1], [2, 3]]
    assert batch[1]["x"].tolist() == [[4, 5]]
    assert np.shares_memory(batch[1]["x"], whole["x"])


def test_columns_are_whole_until_an_input_of_a_request_is_replaced():
    batch = batch_of([2, 1])
    assert list(batch.columns()) == ["x", "id"]
    assert batch[1]["x"].shape == (1, 2)
    assert batch.columns() is not None
    batch[1]["x"] = batch[1]["x"] + 1
    assert batch.columns() is None


def test_inputs_that_are_added_are_columns_and_views():
    batch = batch_of([2, 1])
    batch.add({"z": np.arange(3)})
    assert list(batch.columns()) == ["x", "id", "z"]
    assert [request["z"].tolist() for request in batch] == [[0, 1], [2]]


@pytest.mark.parametrize(
    "change",
    [
        lambda batch: batch.pop(),
        lambda batch: batch.reverse(),
        lambda batch: batch.__setitem__(0, Request()),
        lambda batch: batch.__setitem__(0, batch_of([2])[0]),
        lambda batch: setattr(batch[0], "data", {}),
        lambda batch: batch[0].update(y=np.zeros(2)),
        lambda batch: batch[1].pop("id"),
    ],
)
def test_columns_are_none_once_the_list_or_a_request_changed(change):
    batch = batch_of([2, 1])
    change(batch)
    assert batch.columns() is None


def test_changing_the_columns_leaves_the_requests_alone():
    batch = batch_of([1])
    del batch.columns()["x"]
    assert list(batch[0]) == ["x", "id"]


def test_a_batch_is_freed_without_the_garbage_collector():
    batch = batch_of([1, 1])
    batch[0]["x"]
    array = weakref.ref(batch[1]["x"].base)
    gc.disable()
    try:
        del batch
        assert array() is None
    finally:
        gc.enable()


@given(st.lists(st.integers(0, 4), max_size=6))
def test_response_batch_cuts_outputs_by_rows(rows):
    output = np.arange(sum(rows))
    responses = ResponseBatch({"y": output}, rows)
    assert [len(response["y"]) for response in responses] == rows
    assert np.concatenate([np.zeros(0, int), *(response["y"] for response in responses)]).tolist() == output.tolist()


def test_response_columns_are_the_outputs_that_were_cut():
    outputs = {"y": np.zeros((3, 1))}
    responses = ResponseBatch(outputs, [2, 1])
    assert responses.columns() is outputs


@pytest.mark.parametrize(
    "change",
    [
        lambda responses: responses.pop(),
        lambda responses: responses.__setitem__(0, Response({})),
        lambda responses: responses.__setitem__(0, ValueError("no")),
        lambda responses: responses[0].__setitem__("y", np.ones((2, 1))),
        lambda responses: responses[0].__setitem__("z", np.ones((2, 1))),
        lambda responses: responses[0].clear(),
        lambda responses: responses.reverse(),
    ],
)
def test_response_columns_are_none_once_a_response_changed(change):
    responses = ResponseBatch({"y": np.zeros((3, 1))}, [2, 1])
    change(responses)
    assert responses.columns() is None


USES = {
    "iteration": lambda batch: [*batch],
    "list": list,
    "index": lambda batch: [batch[0], batch[-1]],
    "slice": lambda batch: batch[:],
    "copy": lambda batch: copy.copy(batch),
    "method copy": lambda batch: batch.copy(),
    "reversed": lambda batch: [*reversed(batch)],
    "unpacking": lambda batch: (lambda first, second: [first, second])(*batch),
    "pop": lambda batch: [batch.pop(), batch.pop()],
    "concatenation": lambda batch: batch + [],  # noqa: RUF005
    "concatenation to another list": lambda batch: [] + batch,  # noqa: RUF005
    "extension": lambda batch: [].__iadd__(batch),
    "slice assignment": lambda batch: (lambda target: [target.__setitem__(slice(0, 0), batch), *target][1:])([]),
    "sorting": lambda batch: sorted(batch, key=id),
    "repetition": lambda batch: batch * 2,
    "pickle": lambda batch: pickle.loads(pickle.dumps(batch)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("name", ["x", "y"])
def test_elements_of_a_batch_have_their_arrays_whatever_the_first_use_of_the_list_is(use, name):
    arrays = {name: np.arange(6, dtype=np.float32).reshape(3, 2)}
    batch = RequestBatch(arrays, [2, 1], [Request(), Request()]) if name == "x" else ResponseBatch(arrays, [2, 1])
    assert (len(batch), bool(batch)) == (2, True)
    assert batch.columns()[name] is arrays[name]
    for element in use(batch):
        assert [*element] == [name]
        assert element[name].shape in ((2, 2), (1, 2))


@pytest.mark.parametrize("name", sorted({*vars(list)} - {*vars(object), "__class_getitem__"}))
def test_every_method_of_a_list_is_replaced_but_for_those_that_look_at_no_element(name):
    assert (getattr(RequestBatch, name) is getattr(list, name)) == (name in {"__len__", "__sizeof__"})


def test_a_batch_compares_with_lists():
    assert ResponseBatch({"y": np.zeros((2, 0))}, [1, 1]) != [{}, {}]
    assert ResponseBatch({}, [1, 1]) == [{}, {}]
