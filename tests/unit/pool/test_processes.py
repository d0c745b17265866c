"""``Processes``: which options it refuses, and the share of the machine that each worker gets."""

from functools import partial

import pytest

from pytriton.exceptions import PyTritonBadParameterError, PyTritonValidationError
from pytriton.pool.resources import THREAD_COUNTS, WorkerResources, all_gpus
from pytriton.workers import Processes

CORES = 4


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [WorkerResources(threads=1)] * 4),
        ({"count": 1}, [WorkerResources(threads=4)]),
        ({"count": 3}, [WorkerResources(threads=1)] * 3),
        ({"count": 2, "threads": 7}, [WorkerResources(threads=7)] * 2),
        ({"count": 1, "threads": None}, [WorkerResources()]),
        ({"count": 1, "instances_per_worker": 2}, [WorkerResources(threads=2)]),
        ({"devices": ["cuda:1", "tpu"]}, [WorkerResources("cuda:1", 2), WorkerResources("tpu", 2)]),
        (
            {"devices": ["a", "b"], "count": 3},
            [WorkerResources("a", 1), WorkerResources("b", 1), WorkerResources("a", 1)],
        ),
    ],
)
def test_workers_share_devices_cores_and_threads(options, expected):
    assert Processes(print, **options).resources(CORES) == expected


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"count": 0}, PyTritonBadParameterError, "count must be an integer from 1 to 1024, or 'auto', got 0"),
        ({"count": "many"}, PyTritonBadParameterError, "count must be .*, got 'many'"),
        ({"count": 1.5}, PyTritonBadParameterError, "count must be .*, got 1.5"),
        ({"count": True}, PyTritonBadParameterError, "count must be .*, got True"),
        ({"count": 5000}, PyTritonBadParameterError, "count must be an integer from 1 to 1024"),
        (
            {"threads": -1},
            PyTritonBadParameterError,
            "threads must be an integer .*, or None, got -1",
        ),
        ({"max_requests": 0}, PyTritonBadParameterError, "max_requests must be .*, got 0"),
        ({"max_restarts": -1}, PyTritonBadParameterError, "max_restarts must be .*, got -1"),
        (
            {"stop_timeout_s": 0},
            PyTritonBadParameterError,
            "a positive number of seconds, got 0",
        ),
        ({"start_timeout_s": float("inf")}, PyTritonBadParameterError, "start_timeout_s must be .*, got inf"),
        ({"minimum": -1}, PyTritonBadParameterError, "minimum must be an integer of at least 0, or None, got -1"),
        ({"idle_s": 0}, PyTritonBadParameterError, "idle_s must be a positive number of seconds, got 0"),
        ({"keep_template": False}, PyTritonValidationError, "without share=True there is no template"),
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
    ("device", "environment", "name", "visible"),
    [
        ("cuda:1", {}, "cuda:0", "1"),
        ("gpu:1", {}, "cuda:0", "1"),
        ("cuda:1", {"CUDA_VISIBLE_DEVICES": "4,GPU-7"}, "cuda:0", "GPU-7"),
        ("cuda:2", {"CUDA_VISIBLE_DEVICES": "4,GPU-7"}, "cuda:0", "2"),
        ("cpu", {}, "cpu", None),
        (None, {"CUDA_VISIBLE_DEVICES": "4"}, None, "4"),
    ],
)
def test_a_worker_sees_its_own_gpu_alone(device, environment, name, visible):
    resources = WorkerResources(device)
    assert resources.device_in_worker == name
    assert resources.environment(environment).get("CUDA_VISIBLE_DEVICES") == visible


def test_thread_counts_of_the_environment_win():
    environment = WorkerResources(threads=2).environment({"OMP_NUM_THREADS": "9", "HOME": "/"})
    assert environment == {**dict.fromkeys(THREAD_COUNTS, "2"), "OMP_NUM_THREADS": "9", "HOME": "/"}
    assert WorkerResources().environment({"HOME": "/"}) == {"HOME": "/"}
    assert WorkerResources("cuda:2").environment({}) == {"CUDA_VISIBLE_DEVICES": "2"}
