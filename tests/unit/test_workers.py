"""What worker processes are given: their number, their share of the machine, their task."""

import pickle
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from pytriton.decorators import batch, group_by_values
from pytriton.decorators.batching import whole_batch_form
from pytriton.exceptions import PyTritonBadParameterError, PyTritonValidationError
from pytriton.workers import Processes
from pytriton.workers.deaths import LONGEST_PAUSE_S, pause_s
from pytriton.workers.devices import all_gpus, visible_in_worker
from pytriton.workers.pickling import dumps
from pytriton.workers.place import THREAD_COUNTS, Place, share

CORES = [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [Place(threads=1)] * 4),
        ({"count": 1}, [Place(threads=4)]),
        ({"count": 3}, [Place(threads=1)] * 3),
        ({"count": 2, "threads": 7}, [Place(threads=7)] * 2),
        ({"count": 1, "threads": None}, [Place()]),
        ({"count": 2, "pin": True}, [Place(threads=2, cores=(0, 1)), Place(threads=2, cores=(2, 3))]),
        ({"devices": ["cuda:1", "tpu"]}, [Place("cuda:1", 2), Place("tpu", 2)]),
        ({"devices": ["a", "b"], "count": 3}, [Place("a", 1), Place("b", 1), Place("a", 1)]),
    ],
)
def test_workers_share_devices_cores_and_threads(options, expected):
    assert Processes(print, **options).places(CORES) == expected


@pytest.mark.parametrize(("index", "count", "expected"), [(0, 3, [0]), (1, 3, [1]), (2, 3, [2, 3]), (5, 8, [1])])
def test_each_worker_has_cores_of_its_own_if_there_are_enough(index, count, expected):
    assert share(CORES, index, count) == expected


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"count": 0}, PyTritonBadParameterError, "count is 0"),
        ({"count": "many"}, PyTritonBadParameterError, "count is 'many'; give a whole number from 1 on, or 'auto'"),
        ({"count": 1.5}, PyTritonBadParameterError, "count is 1.5"),
        ({"count": True}, PyTritonBadParameterError, "count is True"),
        ({"count": 5000}, PyTritonBadParameterError, "more than 1024"),
        ({"threads": -1}, PyTritonBadParameterError, "threads is -1"),
        ({"max_requests": 0}, PyTritonBadParameterError, "max_requests is 0"),
        ({"max_restarts": -1}, PyTritonBadParameterError, "max_restarts is -1"),
        ({"stop_timeout_s": 0}, PyTritonBadParameterError, "stop_timeout_s is 0"),
        ({"start_timeout_s": float("inf")}, PyTritonBadParameterError, "start_timeout_s is inf"),
        ({"wait_for": "some"}, PyTritonValidationError, "wait_for is 'some'; give 'all' or 'first'"),
        ({"devices": []}, PyTritonValidationError, "give a list such as"),
        ({"devices": "cuda:0"}, PyTritonValidationError, "give a list such as"),
        ({"devices": [0]}, PyTritonValidationError, "give a list such as"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(options, error, message):
    with pytest.raises(error, match=message):
        Processes(print, **options)


def test_a_factory_must_be_callable():
    with pytest.raises(PyTritonValidationError, match="factory is 3; give what returns the inference callable"):
        Processes(3)


def test_only_a_factory_that_has_a_parameter_for_it_is_told_its_device():
    assert Processes(lambda device: device).takes_device()
    assert Processes(partial(lambda size, device=None: device, 3)).takes_device()
    assert not Processes(lambda: None).takes_device()
    assert not Processes(dict).takes_device()  # which has no signature


@pytest.mark.parametrize(
    ("environment", "folders", "expected"),
    [
        ({}, ["0000:01", "0000:02"], ["cuda:0", "cuda:1"]),
        ({}, [], []),
        ({"CUDA_VISIBLE_DEVICES": "3"}, ["0000:01", "0000:02"], ["cuda:0"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, ["0000:01"], []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, ["0000:01"], []),
    ],
)
def test_all_gpus_are_those_that_this_process_may_use(tmp_path, environment, folders, expected):
    for name in folders:
        (tmp_path / name).mkdir()
    assert all_gpus(environment, tmp_path) == expected


@pytest.mark.parametrize(
    ("device", "environment", "expected"),
    [
        ("cuda:1", {}, ("cuda:0", "1")),
        ("cuda:1", {"CUDA_VISIBLE_DEVICES": "4,GPU-7"}, ("cuda:0", "GPU-7")),
        ("cpu", {}, ("cpu", None)),
        (None, {"CUDA_VISIBLE_DEVICES": "4"}, (None, None)),
    ],
)
def test_a_worker_sees_its_own_gpu_alone(device, environment, expected):
    assert visible_in_worker(device, environment) == expected


def test_thread_counts_of_the_environment_win():
    environment = Place(threads=2).environment({"OMP_NUM_THREADS": "9", "HOME": "/"})
    assert environment == {**dict.fromkeys(THREAD_COUNTS, "2"), "OMP_NUM_THREADS": "9", "HOME": "/"}
    assert Place().environment({"HOME": "/"}) == {"HOME": "/"}
    assert Place("cuda:2").environment({}) == {"CUDA_VISIBLE_DEVICES": "2"}


def test_pauses_between_restarts_grow_from_none_to_a_limit():
    pauses = [pause_s(deaths) for deaths in range(1, 20)]
    assert pauses[:3] == [0.0, 0.5, 1.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_S


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
from pytriton.workers.pickling import dumps

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
