"""What is recorded of calls of all forms is what each request would have alone."""

import json
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pytriton.decorators import batch
from pytriton.decorators.batching import whole_batch_form
from pytriton.model_config import Recording
from pytriton.recording import read
from pytriton.wire.frames import REQUEST, Frame, pack, unpack
from pytriton.wire.tensors import tensor
from pytriton.worker.inference import Inference, Options
from pytriton.worker.observation import Observation
from tests.unit.links import BOTH

RECORD_BYTES = 8192
SMALL, LARGE = 3, 9000  # bytes of a text
FAILING = "no"


@dataclass(frozen=True)
class Sent:
    """A request."""

    rows: int
    text: int
    fails: bool
    is_chosen: bool

    def arrays(self, number):
        """Its inputs, unlike those of all others."""
        x = np.arange(self.rows * 2, dtype=np.float32).reshape(-1, 2) + 100 * number
        return {"x": x, "s": np.array([[b"%d" % number * self.text]] * self.rows, object)}


def sizes(fails=False):
    return st.builds(
        Sent,
        rows=st.integers(1, 3),
        text=st.sampled_from([SMALL, SMALL, SMALL, 300, LARGE]),
        fails=st.booleans() if fails else st.just(False),
        is_chosen=st.sampled_from([True, True, False]),
    )


CALLS = st.lists(
    st.tuples(
        st.booleans(),  # whether each request has tensors of its own
        st.sampled_from([0, 1, 400]),  # how long the id of each is
        st.booleans(),  # whether each is answered alone
        st.one_of(st.lists(sizes(), min_size=1, max_size=5), st.lists(sizes(fails=True), min_size=1, max_size=5)),
    ),
    min_size=1,
    max_size=6,
)


def frame_of(first, requests, are_apart, id_length):
    """The frame that a proxy sends for these requests."""
    rows = None if are_apart else [each.rows for each in requests]
    entries = {str(index): {"id": id_of(first + index, id_length)} for index in range(len(requests))}
    metadata = json.dumps(entries).encode() if id_length else b""
    arrays, tensors = [each.arrays(first + index) for index, each in enumerate(requests)], []
    for name, key in enumerate("xs"):
        if are_apart:
            tensors += [tensor(name, each[key], index) for index, each in enumerate(arrays)]
        else:
            tensors.append(tensor(name, np.concatenate([each[key] for each in arrays])))
    return unpack(memoryview(bytearray(pack(Frame(REQUEST, 0, len(requests), rows, metadata), tensors))))


def id_of(number, length):
    return f"{number}," * length


@settings(max_examples=150, deadline=None)
@given(CALLS)
def test_each_chosen_request_is_recorded_as_if_it_were_alone(tmp_path_factory, calls):
    path = tmp_path_factory.mktemp("forms") / "m.ptr"
    observation, failing = Observation(), set()
    observation.start_recording(BOTH, Recording(path, record_bytes=RECORD_BYTES))
    recorder = observation.recorder(BOTH)

    def answer(requests):
        answers = [{"y": 2 * each["x"], "z": each["s"]} for each in requests]
        return [ValueError(FAILING) if index in failing else each for index, each in enumerate(answers)]

    @batch
    def answer_together(x, s):
        return {"y": 2 * x, "z": s}

    each_alone = Inference(answer, BOTH, Options(), lambda: None, None, observation=observation)
    form = whole_batch_form(answer_together)
    together = Inference(answer_together, BOTH, Options(), lambda: None, form, observation=observation)
    expected, too_large, first = [], 0, 0
    for are_apart, id_length, is_alone, requests in calls:
        chosen = [index for index, each in enumerate(requests) if each.is_chosen]
        recorder._choose = lambda _, chosen=chosen: chosen
        failing.clear()
        failing.update(index for index, each in enumerate(requests) if each.fails)
        inference = each_alone if failing or is_alone else together
        inference.answer(frame_of(first, requests, are_apart, id_length))
        for index in chosen:
            sent = requests[index]
            inputs = sent.arrays(first + index)
            error = f"ValueError: {FAILING}" * sent.fails
            told = id_of(first + index, id_length), len(requests), index, error
            answers = [] if sent.fails else [{"y": 2 * inputs["x"], "z": inputs["s"]}]
            if sent.text == LARGE:
                too_large += 1
            else:
                expected.append((*told, listed(inputs), [*map(listed, answers)]))
        first += len(requests)
    status = observation.stop_recording(BOTH)
    assert (status.recorded, status.too_large, status.dropped) == (len(expected), too_large, 0)
    assert [
        (each.id, each.batch, each.index, each.error, listed(each.inputs), [*map(listed, each.responses)])
        for each in read(path)
    ] == expected


def listed(arrays):
    return {name: each.tolist() for name, each in arrays.items()}
