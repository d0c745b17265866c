from __future__ import annotations

import contextvars
import functools
import operator
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from pytriton.decorators import batch, sample, triton_context
from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.worker.context import (
    Binding,
    ModelConfigDict,
    TritonContext,
    attach,
    current_binding,
    get_model_config,
    get_triton_context,
)

FIRST, SECOND = TritonModelConfig("first"), TritonModelConfig("second")


def infer(requests):
    return requests


@dataclass
class Model:
    """A callable object; as a dataclass it is neither hashable nor different from its equals."""

    size: int = 1

    def __call__(self, requests):
        return requests

    @batch
    def infer(self, **inputs):
        return inputs

    @batch
    def other(self, **inputs):
        return inputs


class Slotted:
    __slots__ = ()

    def __call__(self, requests):
        return requests


def in_thread(function, *args):
    """Call in a thread that has no binding; threads have contexts of their own."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*args)))
    thread.start()
    thread.join()
    return results[0]


def served(binding, function, *args):
    """Call as the worker thread of a binding does."""

    def run():
        current_binding.set(binding)
        return function(*args)

    return contextvars.copy_context().run(run)


def test_model_configs_is_a_mutable_mapping():
    configs = ModelConfigDict()
    configs[infer] = FIRST
    model = Model()
    configs[model.infer] = SECOND
    assert len(configs) == 2
    assert list(configs) == [infer, model.infer]
    assert configs[infer] is FIRST
    assert configs[model.infer] is SECOND
    del configs[infer]
    assert infer not in configs
    assert list(configs.values()) == [SECOND]


def test_unknown_callable_is_a_key_error():
    configs = ModelConfigDict()
    with pytest.raises(KeyError, match="infer"):
        configs[infer]
    with pytest.raises(KeyError, match="infer"):
        del configs[infer]


def test_methods_of_one_object_and_objects_that_are_equal_are_distinct_keys():
    configs, model, equal = ModelConfigDict(), Model(), Model()
    for index, target in enumerate([model, equal, model.infer, model.other, equal.infer]):
        configs[target] = TritonModelConfig(f"model{index}")
    assert [configs[target].model_name for target in (model, equal, model.infer, model.other, equal.infer)] == [
        "model0", "model1", "model2", "model3", "model4",
    ]  # fmt: skip


def test_bound_call_is_the_key_of_its_object():
    configs, model = ModelConfigDict(), Model()
    configs[model.__call__] = FIRST
    assert configs[model] is FIRST
    assert next(iter(configs)) is model


def test_a_function_and_its_decorated_forms_are_one_key():
    configs = ModelConfigDict()
    configs[sample(batch(infer))] = FIRST
    assert configs[infer] is configs[batch(infer)] is FIRST


def test_partials_of_one_function_are_distinct_keys():
    configs, first, second = ModelConfigDict(), functools.partial(infer), functools.partial(infer)
    configs[first], configs[second] = FIRST, SECOND
    assert (configs[first], configs[second]) == (FIRST, SECOND)
    assert infer not in configs


def test_one_callable_bound_to_two_models_sees_each_models_own_configuration():
    context, elsewhere = TritonContext(), TritonContext()
    function = batch(lambda **inputs: inputs)
    attach(function, context, FIRST)
    attach(function, context, SECOND)
    attach(function, elsewhere, TritonModelConfig("third"))
    for config in (FIRST, SECOND):
        binding = Binding(function, config, context)
        assert served(binding, get_triton_context, function, None) is context
        assert served(binding, get_model_config, function, None) is config
        assert served(binding, lambda: context.model_configs[function]) is config
    assert context.model_configs[function] is SECOND
    in_first = Binding(function, FIRST, context)
    assert served(in_first, lambda: elsewhere.model_configs[function].model_name) == "third"


def test_a_callable_is_forgotten_with_the_last_model_that_it_serves():
    configs = ModelConfigDict()
    model = Model()
    for config in (FIRST, SECOND, FIRST):
        configs.add(model.infer, config)
    configs.discard(model.infer, FIRST)
    assert configs[model.infer] is SECOND
    configs.discard(model.infer, SECOND)
    assert configs[model.infer] is FIRST
    configs.discard(model.infer, SECOND)  # again: nothing happens
    configs.discard(model.infer, FIRST)
    assert model.infer not in configs
    configs.discard(model.infer, FIRST)
    assert len(configs) == 0


def test_a_bound_callable_keeps_its_configuration_when_another_one_calls_it():
    context = TritonContext()
    outer, inner = Model(), Model()
    attach(outer, context, FIRST)
    attach(inner, context, SECOND)
    assert served(Binding(outer, FIRST, context), get_model_config, inner, None) is SECOND


def test_an_unbound_callable_has_the_configuration_of_the_one_that_calls_it():
    assert served(Binding(infer, FIRST, TritonContext()), get_model_config, batch(lambda: {}), None) is FIRST


@pytest.mark.parametrize(
    "make",
    [
        lambda: lambda requests: requests,
        lambda: batch(lambda **inputs: inputs),
        lambda: batch(functools.partial(lambda **inputs: inputs)),
        Model,
        lambda: batch(Model()),
        lambda: Model().__call__,
        lambda: Model().infer,
    ],
)
def test_context_and_configuration_are_found_in_threads_without_a_binding(make):
    target, context = make(), TritonContext()
    attach(target, context, FIRST)
    instance = getattr(target, "__self__", None)
    assert in_thread(get_triton_context, target, instance) is context
    assert in_thread(get_model_config, target, instance) is FIRST


def test_function_behind_a_partial_finds_the_context_in_threads_without_a_binding():
    def function(requests):
        return requests

    context = TritonContext()
    attach(functools.partial(batch(function)), context, FIRST)
    assert in_thread(get_triton_context, function, None) is context
    current_binding.set(None)
    with pytest.raises(PyTritonValidationError, match=r"copy_context\(\)\.run"):
        get_model_config(function, None)


@pytest.mark.parametrize("target", [Slotted(), len, operator.itemgetter(0), Slotted().__call__])
def test_objects_that_take_no_attributes_are_served_through_the_binding(target):
    context = TritonContext()
    attach(target, context, FIRST)
    assert context.model_configs[target] is FIRST
    assert served(Binding(target, FIRST, context), get_triton_context, target, None) is context


def test_a_callable_that_is_not_bound_says_what_to_do():
    with pytest.raises(PyTritonValidationError, match=r"'infer' is not bound to a model; pass it to Triton\.bind"):
        get_triton_context(infer, None)
    with pytest.raises(PyTritonValidationError, match=r"Triton\.bind"):
        get_model_config(None, None)


class Unbound:
    @triton_context
    def method(self, requests, triton_context):
        return triton_context


@pytest.mark.parametrize("on", ["the function", "the decorated function", "the object of a method"])
def test_a_context_that_a_test_gives_a_callable_is_found_without_binding_it(on):
    context = TritonContext()
    if on == "the object of a method":
        unbound = Unbound()
        unbound.__triton_context__, decorated = context, unbound.method
    else:
        function = lambda requests, triton_context: triton_context  # noqa: E731
        decorated = triton_context(function)
        (function if on == "the function" else decorated).__triton_context__ = context
    context.model_configs[decorated] = FIRST
    assert decorated([]) is context
    assert get_model_config(decorated, None) is FIRST
    with pytest.raises(PyTritonValidationError, match="in tests give it a TritonContext as attribute __triton"):
        triton_context(infer)([])


def test_a_test_may_give_a_callable_any_object_as_context():
    function = lambda requests, triton_context: triton_context  # noqa: E731
    decorated, context = triton_context(function), SimpleNamespace(model_configs={})
    decorated.__triton_context__ = context
    assert decorated([]) is context
    context.model_configs[decorated] = FIRST
    assert get_model_config(decorated, None) is FIRST


def test_an_attribute_of_the_users_own_is_no_context():
    decorated = triton_context(lambda requests, triton_context: triton_context)
    decorated.triton_context = "mine"
    with pytest.raises(PyTritonValidationError, match="is not bound to a model"):
        decorated([])


def test_the_keyword_names_of_model_configs_are_those_of_the_documentation():
    configs = ModelConfigDict()
    configs.__setitem__(infer_callable=infer, item=FIRST)
    assert configs.__getitem__(infer_callable=infer) is FIRST
    configs.__delitem__(infer_callable=infer)
    assert infer not in configs
