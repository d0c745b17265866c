"""Models whose callables run in worker processes."""

import numpy as np

from pytriton.decorators import batch
from pytriton.workers import Processes
from tests.server.arrays import filled


def double():
    @batch
    def infer(x):
        return [x * 2]

    return infer


def test_a_callable_made_in_a_worker_answers(bind, traffic):
    model = bind(Processes(double, count=1))
    assert np.array_equal(traffic.infer(model, filled(3))["y"], filled(6))
