"""Callables and factories travel to worker processes with their decorators."""

import pickle
import subprocess
import sys

import numpy as np

from pytriton.decorators import batch, group_by_values
from pytriton.decorators.batching import whole_batch_form
from pytriton.pool.messages import dumps


@batch
def importable(x):
    return {"y": x * 2}


class Scaling:
    def __init__(self, factor):
        self.factor = factor

    @batch
    def scale(self, x):
        return {"y": x * self.factor}


def test_decorated_functions_of_a_module_travel_by_name():
    assert pickle.loads(dumps(importable)) is importable


def test_decorated_functions_without_a_name_keep_their_decorators():
    @batch
    def infer(x):
        return {"y": x * 3}

    copy = pickle.loads(dumps(infer))
    assert whole_batch_form(copy)
    ((answer,), (plain,)) = copy([{"x": np.ones((1, 1))}]), [importable.__wrapped__(np.ones(1))]
    assert answer["y"] == plain["y"] + 1


def test_decorators_with_arguments_travel_too():
    @batch
    @group_by_values("factor")
    def infer(x, factor):
        assert len(np.unique(factor)) == 1
        return {"y": x * factor}

    copy = pickle.loads(dumps(infer))
    (answer,) = copy([{"x": np.ones((2, 1)), "factor": np.array([[5.0], [7.0]])}])
    assert answer["y"].tolist() == [[5.0], [7.0]]


def test_methods_keep_their_objects_and_decorators():
    copy = pickle.loads(dumps(Scaling(4).scale))
    (answer,) = copy([{"x": np.ones((1, 1))}])
    assert answer["y"] == 4


SCRIPT = """
import pickle, sys
from pytriton.decorators import batch
from pytriton.pool.messages import dumps

@batch
def infer(x):
    return {"y": x + offset}

offset = 5
sys.stdout.buffer.write(dumps(lambda: infer))
"""


def test_decorated_functions_of_the_main_module_travel_with_what_they_refer_to():
    written = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True).stdout
    infer = pickle.loads(written)()
    assert whole_batch_form(infer)
    (answer,) = infer([{"x": np.ones((1, 1))}])
    assert answer["y"] == 6
