"""What else decides when and where a request is answered: rate limits, instance groups, versions, queues."""

import threading
from functools import partial

import numpy as np
import pytest

from pytriton.model_config import (
    DynamicBatcher,
    InstanceGroup,
    LatestVersions,
    ModelConfig,
    QueuePolicy,
    RateLimiter,
    RateLimiterResource,
    SpecificVersions,
    Tensor,
)
from pytriton.triton import Triton
from tests.server.arrays import filled
from tests.server.conftest import local_config
from tests.server.gated import Gated
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.tritonclients import only

both = pytest.mark.parametrize("api", ["http", "grpc"], indirect=True)
X, Y = (Tensor(name=name, shape=(-1,), dtype=np.float32) for name in "xy")


@pytest.fixture(scope="module")
def triton_config():
    resources = ["slots:2", "few:1"]
    policies = ["first,cpu-cores=0-0", "second,cpu-cores=0-0"]
    with local_config(rate_limit="execution_count", rate_limit_resource=resources, host_policy=policies) as config:
        yield config


class Crowd:
    """Callables that count how many of them work at once, each until it is let go.

    Args:
        size: Number of callables.
    """

    def __init__(self, size):
        self.callables = [partial(self._work, number) for number in range(size)]
        self.working = set()
        self.most = 0
        self.go = threading.Event()
        self._lock = threading.Lock()

    def _work(self, number, requests):
        with self._lock:
            self.working.add(number)
            self.most = max(self.most, len(self.working))
        assert self.go.wait(DEADLINE_S)
        with self._lock:
            self.working.discard(number)
        return [{"y": request["x"]} for request in requests]


def needing(*resources, **options):
    return [InstanceGroup(rate_limiter=RateLimiter(list(resources), **options))]


@both
def test_a_rate_limiter_bounds_how_many_instances_work_at_once(api, bind, pending):
    crowd = Crowd(4)
    model = bind(crowd.callables, max_batch_size=1, instance_groups=needing(RateLimiterResource("slots", 1)))
    answers = [api.submit("infer", model, api.inputs({"x": filled(n)})) for n in range(8)]
    try:
        wait_for(lambda: len(crowd.working) == 2, "two instances to work")
        wait_for(lambda: pending(model) >= 2, "the other requests to wait")
        assert len(crowd.working) == 2
    finally:
        crowd.go.set()
    for number, answer in enumerate(answers):
        assert answer.result(DEADLINE_S).as_numpy("y")[0, 0] == number
    assert crowd.most == 2


@only("grpc")
def test_models_share_a_resource(api, bind, pending):
    crowds = [Crowd(1), Crowd(1)]
    models = [bind(c.callables, instance_groups=needing(RateLimiterResource("few", 1, True))) for c in crowds]
    first = api.submit("infer", models[0], api.inputs({"x": filled(1)}))
    wait_for(lambda: crowds[0].working, "the first model to work")
    second = api.submit("infer", models[1], api.inputs({"x": filled(2)}))
    crowds[1].go.set()
    wait_for(lambda: pending(models[1]) == 1, "the second model's request to wait")
    assert not crowds[1].working
    crowds[0].go.set()
    for answer in (first, second):
        answer.result(DEADLINE_S)


def test_without_enough_of_a_resource_a_model_is_refused(bind):
    with pytest.raises(Exception, match="limited to 2 which will prevent scheduling of one or more model instances"):
        bind(lambda requests: requests, instance_groups=needing(RateLimiterResource("slots", 3)))


@both
def test_each_group_of_instances_has_its_callables_and_options(api, bind):
    crowd = Crowd(3)
    groups = [InstanceGroup(1, host_policy="first"), InstanceGroup(2, host_policy="second")]
    model = bind(crowd.callables, max_batch_size=1, instance_groups=groups)
    answers = [api.submit("infer", model, api.inputs({"x": filled(n)})) for n in range(3)]
    try:
        wait_for(lambda: len(crowd.working) == 3, "all callables to work")
    finally:
        crowd.go.set()
    for answer in answers:
        answer.result(DEADLINE_S)
    found = api.call("get_model_config", model)["instance_group"]
    assert [(group["count"], group["host_policy"]) for group in found] == [(1, "first"), (2, "second")]


class Versions:
    """A model whose versions answer with their numbers.

    Args:
        triton: Serves it.
        name: Of the model.
        policy: Which versions are served.
    """

    def __init__(self, triton, name, policy):
        self._triton, self.name, self._policy = triton, name, policy

    def bind(self, version):
        def answer(requests):
            return [{"y": np.full_like(request["x"], version)} for request in requests]

        config = ModelConfig(version_policy=self._policy)
        self._triton.bind(self.name, answer, [X], [Y], model_version=version, config=config)

    def ready(self, api):
        return [version for version in (1, 2, 3) if api.call("is_model_ready", self.name, str(version))]


@both
@pytest.mark.parametrize(
    ("policy", "ready", "default"),
    [(LatestVersions(2), [2, 3], 3), (LatestVersions(), [3], 3), (SpecificVersions([1, 2]), [1, 2], 2)],
    ids=["latest two", "latest", "specific"],
)
def test_a_version_policy_decides_which_versions_are_served(api, triton, policy, ready, default, caplog):
    name = f"{api.kind}-{type(policy).__name__}-{len(ready)}"
    versions = Versions(triton, name, policy)
    for version in (1, 2, 3):
        versions.bind(version)
    wait_for(lambda: versions.ready(api) == ready, f"versions {ready} to be those that are served")
    assert api.infer(name, {"x": filled(0)})["y"][0, 0] == default
    for version in ready:
        assert api.infer(name, {"x": filled(0)}, model_version=str(version))["y"][0, 0] == version
    assert triton.is_alive()
    if 3 not in ready:
        assert f"model {name}: its version policy leaves version 3 out" in caplog.text


def test_versions_bound_before_the_start_follow_the_policy_too():
    with local_config(allow_grpc=False) as config:
        triton = Triton(config=config)
        versions = Versions(triton, "m", LatestVersions())
        for version in (1, 2):
            versions.bind(version)
        with triton:
            assert triton.is_alive()


@both
def test_each_priority_has_the_queue_that_its_policy_says(api, bind, pending):
    policies = {1: QueuePolicy(max_queue_size=1)}
    batcher = DynamicBatcher(priority_levels=2, default_priority_level=2, priority_queue_policy=policies)
    gated = Gated()
    model = bind(gated, max_batch_size=1, batcher=batcher)
    answers = []

    def send(number, **options):
        answers.append(api.submit("infer", model, api.inputs({"x": filled(number)}), **options))

    try:
        send(1)
        gated.wait_called()
        for count, (number, priority) in enumerate([(2, 2), (3, 2), (4, 1)], 1):
            send(number, priority=priority)
            wait_for(lambda: pending(model) == count, "the request to wait")  # noqa: B023
        with api.refuses("UNAVAILABLE", "Exceeds maximum queue size"):
            api.infer(model, {"x": filled(5)}, priority=1)
    finally:
        gated.gate.open()
    for answer in answers:
        answer.result(DEADLINE_S)
    assert gated.seen == [1, 4, 2, 3]
