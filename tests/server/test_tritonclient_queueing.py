"""Requests of tritonclient that wait in the server's queue: timeouts, priorities, the queue's size, cancellation."""

import pytest

from pytriton.model_config import DynamicBatcher, QueuePolicy, TimeoutAction
from tests.server.arrays import filled
from tests.server.gated import Gated
from tests.server.processes import DEADLINE_S, wait_for
from tests.server.proxies import IS_NATIVE
from tests.server.tritonclients import only_grpc

pytestmark = pytest.mark.either_proxy

LONG_US = 600_000_000
EXPIRED = {"timeout": 1}  # us


def policy(timeout_us=LONG_US, override=True, **options):
    """Requests can shorten the model's timeout, not prolong it; so one without a timeout of its own ignores theirs."""
    return DynamicBatcher(
        default_queue_policy=QueuePolicy(
            default_timeout_microseconds=timeout_us, allow_timeout_override=override, **options
        )
    )


BATCHERS = {
    "reject": policy(),
    "delay": policy(timeout_action=TimeoutAction.DELAY),
    "no override": policy(override=False),
    "no timeout": policy(timeout_us=0),
    "size": policy(max_queue_size=2),
    "priority": DynamicBatcher(priority_levels=3, default_priority_level=2),
    "no batcher": None,
}


@pytest.fixture(scope="module")
def models(bind):
    """A model for each way to queue, which is called with one request at a time."""
    found = {}
    for name, batcher in BATCHERS.items():
        found[name] = Gated()
        found[name].model = bind(found[name], max_batch_size=1, batcher=batcher)
    return found


class Queue:
    """Requests 1, 2, ... for a model that is busy with the first of them."""

    def __init__(self, api, gated, pending):
        self._api, self.gated, self._pending = api, gated, pending
        self.calls = []
        gated.reset()
        self.send()
        gated.wait_called()

    def send(self, waits=True, **options):
        """Send the next one, and see it wait."""
        number = len(self.calls) + 1
        self.calls.append(
            self._api.submit("infer", self.gated.model, self._api.inputs({"x": filled(number)}), **options)
        )
        if waits:
            wait_for(lambda: self._pending(self.gated.model) == number - 1, f"{number - 1} requests to wait")
        return self.calls[-1]

    def finish(self):
        """Let all be called, and return the order in which they were."""
        self.gated.gate.open()
        for call in self.calls:
            call.exception(DEADLINE_S)
        return self.gated.seen


@pytest.fixture
def queue(api, models, pending):
    """``queue(name)``: a busy model."""
    made = []

    def queue(name):
        made.append(Queue(api, models[name], pending))
        return made[-1]

    yield queue
    for each in made:
        each.gated.gate.open()


def test_a_request_that_waited_too_long_is_refused(api, queue):
    waiting = queue("reject")
    waiting.send()
    late = waiting.send(**EXPIRED)
    waiting.send(timeout=LONG_US)
    assert waiting.finish() == [1, 2, 4]
    with api.refuses("UNAVAILABLE", "timeout expired"):
        late.result()


def test_a_request_that_waited_too_long_comes_last_if_the_model_delays(queue):
    waiting = queue("delay")
    waiting.send()
    late = waiting.send(**EXPIRED)
    waiting.send()
    assert waiting.finish() == [1, 2, 4, 3]
    assert late.result().as_numpy("y")[0, 0] == 6


@pytest.mark.parametrize("name", ["no override", "no timeout", "no batcher", "priority"])
def test_a_timeout_is_ignored_where_the_model_does_not_allow_it(queue, name):
    waiting = queue(name)
    waiting.send()
    waiting.send(**EXPIRED)
    assert waiting.finish() == [1, 2, 3]


def test_a_request_that_finds_the_queue_full_is_refused(api, queue):
    waiting = queue("size")
    waiting.send()
    waiting.send()
    with api.refuses("UNAVAILABLE", "Exceeds maximum queue size"):
        waiting.send(waits=False).result(DEADLINE_S)
    assert waiting.finish() == [1, 2, 3]


def test_urgent_requests_overtake_and_unknown_levels_are_the_default(queue):
    waiting = queue("priority")
    for priority in (3, 0, 1, 2, 7, 1):  # requests 2 to 7; 0 is the model's default
        waiting.send(priority=priority)
    assert waiting.finish() == [1, 4, 7, 3, 5, 6, 2]


def test_priorities_are_ignored_where_the_model_has_none(queue):
    waiting = queue("no batcher")
    for priority in (3, 1):
        waiting.send(priority=priority)
    assert waiting.finish() == [1, 2, 3]


def start(api, model, number):
    """Start a request that can be cancelled, which those with a callback can, and return what does it."""
    inputs = api.inputs({"x": filled(number)})
    if api.is_aio:
        return api.submit("infer", model, inputs).cancel
    return api.client.async_infer(model, inputs, lambda result, error: None).cancel


@only_grpc
@pytest.mark.parametrize(
    ("name", "called"),
    [
        pytest.param("reject", [1, 2, 4], id="is dropped by the batcher"),
        pytest.param("no batcher", [1, 2, 4] if IS_NATIVE else [1, 2, 3, 4], id="without a batcher"),
    ],
)
def test_a_cancelled_request_that_waits(api, queue, pending, name, called):
    waiting = queue(name)
    waiting.send()  # the batcher has chosen it already
    cancel = start(api, waiting.gated.model, 3)
    wait_for(lambda: pending(waiting.gated.model) == 2, "the cancelled request to wait")
    waiting.calls.append(waiting.calls[0])  # stands for it
    cancel()
    assert api.call("is_server_live")  # behind it on the same connection
    waiting.send()
    assert waiting.finish() == called
