"""Instances of the server and the callables that were bound for them."""

import pytest

from pytriton.python_proxy.placement import check_as_bound, instance_number

CONFIG = {
    "name": "m",
    "max_batch_size": 4,
    "input": [{"name": "a"}, {"name": "b"}],
    "output": [{"name": "y"}],
    "instance_group": [
        {"name": "m_0", "count": 1, "kind": "KIND_CPU", "gpus": []},
        {"name": "m_1", "count": 2, "kind": "KIND_GPU", "gpus": [0, 3]},
    ],
}
BOUND = {"callables": 5, "input": ["a", "b"], "output": ["y"], "batching": True, "decoupled": False}


def test_callables_are_counted_through_groups_and_their_gpus():
    instances = [("m_0_0", "0"), ("m_1_0", "0"), ("m_1_0", "3"), ("m_1_1", "0"), ("m_1_1", "3")]
    assert [instance_number(CONFIG, *instance) for instance in instances] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("instance", [("m_0_1", "0"), ("m_1_0", "1"), ("other_0_0", "0")])
def test_an_instance_of_no_group_is_refused(instance):
    with pytest.raises(ValueError, match="is in no instance group"):
        instance_number(CONFIG, *instance)


def test_as_many_instances_as_callables_or_fewer_can_be_served():
    check_as_bound(CONFIG, BOUND)
    check_as_bound(CONFIG, {**BOUND, "callables": 6})


def test_more_instances_than_callables_are_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"5 instances, but was bound with 4 callables.*a list of 5 callables"):
        check_as_bound(CONFIG, {**BOUND, "callables": 4})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": [{"name": "b"}, {"name": "a"}]}, r"input \['b', 'a'\], but was bound with \['a', 'b'\]"),
        ({"output": []}, r"output \[\], but was bound with \['y'\]"),
        ({"max_batch_size": 0}, "batching False, but was bound with True"),
        ({"model_transaction_policy": {"decoupled": True}}, "decoupled True, but was bound with False"),
    ],
)
def test_another_form_of_the_model_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        check_as_bound({**CONFIG, **changes}, BOUND)
