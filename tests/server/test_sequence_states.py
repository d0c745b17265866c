"""States per sequence behind the server's sequence batcher."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pytriton.decorators import PerSequence, batch, sequence_states
from pytriton.model_config import DirectStrategy, OldestStrategy, SequenceBatcher
from tests.server.arrays import filled
from tests.unit.totals import Total

SEQUENCES = [1, 2**40, "one", "1"]
ROUNDS = 5


class Totals:
    """The same for several sequences at once; keeps how many there were in each call."""

    def __init__(self):
        self.sizes = []

    @sequence_states(Total)
    @batch
    def __call__(self, x, states):
        self.sizes.append(len(states))
        return {"y": np.concatenate([state(row[None])["y"] for state, row in zip(states, x, strict=True)])}


FORMS = {"PerSequence": lambda: PerSequence(Total), "sequence_states": Totals}
STRATEGIES = {"direct": DirectStrategy(), "oldest": OldestStrategy(max_candidate_sequences=8)}


@pytest.fixture(scope="module")
def models(bind):
    """Models of two instances, by form and strategy."""
    return {
        (form, strategy): bind([make(), make()], max_batch_size=4, batcher=patient(chosen))
        for form, make in FORMS.items()
        for strategy, chosen in STRATEGIES.items()
    }


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


@pytest.fixture(params=STRATEGIES)
def model(models, form, request):
    return models[form, request.param]


def patient(strategy):
    return SequenceBatcher(strategy=strategy, max_sequence_idle_microseconds=60_000_000)


def send(api, model, sequence, number):
    """One request of a sequence of ROUNDS."""
    options = {"sequence_id": sequence, "sequence_start": number == 0, "sequence_end": number == ROUNDS - 1}
    return api.infer(model, {"x": filled(number, 1, 1)}, **options)["y"][0, 0].item()


def test_interleaved_sequences_keep_their_states(api, model):
    for _ in range(2):  # the ids may be used again
        for number in range(ROUNDS):
            for sequence in SEQUENCES:
                assert send(api, model, sequence, number) == sum(range(number + 1))


def test_sequences_of_several_clients_keep_their_states(api, model):
    def run(sequence):
        with api.other() as own:
            return [send(own, model, sequence, number) for number in range(ROUNDS)]

    with ThreadPoolExecutor(4) as pool:
        for totals in pool.map(run, SEQUENCES):
            assert totals == [sum(range(number + 1)) for number in range(ROUNDS)]


def at_once(traffic, model, sequences):
    """First requests of some sequences, sent together; the finished calls."""

    def run(sequence):
        return traffic.infer_bare(model, {"x": filled(sequence, 1, 1)}, sequence_id=sequence, sequence_start=True)

    with ThreadPoolExecutor(len(sequences)) as pool:
        return [pool.submit(run, sequence) for sequence in sequences]


def merging(count):
    """A strategy that waits until so many sequences have a request."""
    return OldestStrategy(
        max_candidate_sequences=count, preferred_batch_size=[count], max_queue_delay_microseconds=20_000_000
    )


def test_the_oldest_strategy_gives_several_sequences_to_one_call(bind, traffic):
    totals = Totals()
    model = bind(totals, max_batch_size=4, batcher=patient(merging(4)))
    calls = at_once(traffic, model, [1, 2, 3, 4])
    assert [call.result()["y"][0, 0] for call in calls] == [1, 2, 3, 4]
    assert totals.sizes == [4]


@pytest.fixture(scope="module")
def without_sequence_batching(bind):
    return bind(PerSequence(Total))


def test_a_sequence_without_a_start_is_an_error_that_says_so(api, without_sequence_batching):
    """Where the server batches sequences, it refuses such requests itself."""
    with api.refuses("INVALID_ARGUMENT", "has not started"):
        send(api, without_sequence_batching, 7, 1)
    with api.refuses("INVALID_ARGUMENT", "belongs to no sequence"):
        api.infer(without_sequence_batching, {"x": filled(1)})
    assert send(api, without_sequence_batching, 7, 0) == 0
    assert send(api, without_sequence_batching, 7, ROUNDS - 1) == ROUNDS - 1


def test_a_failing_call_is_not_made_again_where_it_would_change_states_twice(bind, traffic):
    calls = []

    @sequence_states(Total)
    @batch
    def failing(x, states):
        calls.append(len(states))
        raise ValueError("no")

    model = bind(failing, max_batch_size=2, batcher=patient(merging(2)))
    for call in at_once(traffic, model, [1, 2]):
        assert "ValueError: no" in str(call.exception())
    assert calls == [2]
