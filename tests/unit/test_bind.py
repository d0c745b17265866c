"""Mistakes that ``bind`` and ``rebind`` find, without a server."""

import functools
import re
from unittest.mock import MagicMock, create_autospec

import numpy as np
import pytest
import wrapt

from pytriton.decorators import (
    PerSequence,
    batch,
    fill_optionals,
    first_value,
    group_by_keys,
    group_by_values,
    pad_batch,
    sample,
    sequence_states,
    triton_context,
    with_requests,
)
from pytriton.exceptions import PyTritonBadParameterError, PyTritonInvalidOperationError, PyTritonValidationError
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import RemoteTriton, Triton
from pytriton.workers import Processes

IN = [Tensor(name="x", shape=(-1,), dtype=np.float32), Tensor(name="y", shape=(1,), dtype=np.float32, optional=True)]
OUT = [Tensor(name="z", shape=(-1,), dtype=np.float32)]


@pytest.fixture
def triton(tmp_path):
    """Binds to a server that it has not reached yet."""
    triton = RemoteTriton("localhost:1", tmp_path / "workspace")
    yield triton
    triton.__exit__()


def listed(requests):
    return requests


def two(x, y):
    return [x]


def wrapped_elsewhere(function):
    """A decorator of another library, which changes what the function gets."""

    @functools.wraps(function)
    def changed(*args, **kwargs):
        return function(*args, extra=1, **kwargs)

    return changed


@wrapt.decorator
def wrapt_elsewhere(wrapped, instance, args, kwargs):
    return wrapped(*args, extra=1, **kwargs)


class Model:
    def listed(self, requests): ...

    @batch
    def by_name(self, x, y=None): ...

    @batch
    def __call__(self, x, y): ...

    @staticmethod
    @batch
    def static(x, y): ...


class Plain:
    def __call__(self, requests): ...


class Total:
    def __call__(self, x): ...


def make():
    return listed


GOOD = {
    "a list of requests": listed,
    "a lambda": lambda requests: requests,
    "further parameters with defaults": lambda requests, more=1, *, other=2: requests,
    "any arguments": lambda *args, **kwargs: args,
    "a bound method": Model().listed,
    "a decorated method": Model().by_name,
    "a static method": Model.static,
    "an object": Plain(),
    "an object with a decorated call": Model(),
    "a partial": functools.partial(lambda model, requests: requests, 1),
    "a partial by keyword": functools.partial(lambda requests, model: requests, model=1),
    "a partial of what is decorated": functools.partial(batch(two)),
    "a builtin": len,
    "a C function": np.asarray,
    "a ufunc": np.sin,
    "a class without instances that can be called": list,
    "a mock": MagicMock(),
    "a mock of a function": create_autospec(listed),
    "a cached function": functools.lru_cache(listed),
    "inputs by name": batch(two),
    "any inputs": batch(lambda **inputs: inputs),
    "keyword-only inputs": batch(lambda *, x, y: [x]),
    "an optional input that is not taken": batch(lambda x: [x]),
    "an optional input with a default": batch(lambda x, y=None, z=3: [x]),
    "a sample": sample(two),
    "the whole stack": fill_optionals(y=np.ones(1, np.float32))(
        group_by_keys(
            batch(group_by_values("y")(pad_batch(first_value("y")(triton_context(lambda x, y, triton_context: 1)))))
        )
    ),
    "the context above batch": triton_context(batch(lambda x, y, triton_context: 1)),
    "requests beside inputs": with_requests(batch(lambda x, y, requests: 1)),
    "states beside inputs": sequence_states(dict)(batch(lambda x, y, states: 1)),
    "the context of a list": triton_context(lambda requests, triton_context: 1),
    "an object for each sequence": PerSequence(Total),
    "another library's decorator": wrapped_elsewhere(lambda requests, extra: 1),
    "another library's decorator below ours": batch(wrapped_elsewhere(lambda x, y, extra: 1)),
    "another library's decorator above ours": wrapped_elsewhere(batch(lambda x, y, extra: 1)),
    "another wrapt decorator": wrapt_elsewhere(lambda requests, extra: 1),
    "another wrapt decorator below ours": batch(wrapt_elsewhere(lambda x, y, extra: 1)),
}


@pytest.mark.parametrize("function", GOOD.values(), ids=GOOD)
def test_a_callable_that_may_be_right_is_bound(triton, function):
    triton.bind("model", function, IN, OUT)


def make_for(device):
    return listed


BAD = {
    "several parameters without a decorator": (two, "passes one list of requests: missing a required argument: 'y'"),
    "no parameters but a context": (triton_context(make), "passes one list of requests and triton_context"),
    "a method without its object": (Model.listed, "put @batch above the function"),
    "a lacking parameter": (batch(lambda y: 1), "passes the keyword arguments x, y: .*'x'"),
    "a parameter that is no input": (batch(lambda x, image: 1), "missing a required .*'image'"),
    "another spelling": (batch(lambda X, y=None: 1), "give the function's parameters the names of the inputs"),
    "positional-only": (batch(lambda x, /, y: 1), "'x'"),
    "a decorated method": (batch(Model().listed), r"Model.listed\(requests\)"),
    "an object": (triton_context(Plain()), "passes one list of requests and triton_context"),
    "inputs below the whole stack": (group_by_keys(batch(pad_batch(lambda image: 1))), "'image'"),
    "no room for the context": (batch(triton_context(lambda x, y: 1)), "x, y, triton_context: .*'triton_context'"),
    "a partial": (functools.partial(lambda a, b, requests: 1, 1), "missing a required argument: 'requests'"),
    "a class": (Plain, r"is the class Plain; give an object of it, such as Plain\(\)"),
    "a decorated class": (Model, "is the class Model"),
    "a sample": (sample(lambda a: 1), "'a'"),
}


@pytest.mark.parametrize(("function", "message"), BAD.values(), ids=BAD)
def test_a_callable_that_cannot_be_called_as_the_model_does_is_refused(triton, function, message):
    with pytest.raises(PyTritonValidationError, match=message):
        triton.bind("model", function, IN, OUT)
    triton.bind("model", listed, IN, OUT)  # nothing is left of it
    with pytest.raises(PyTritonValidationError, match=message):
        triton.rebind("model", function)


@pytest.mark.parametrize("tensors", [(IN, OUT), ([], [])], ids=["tensors", "no tensors"])
@pytest.mark.parametrize(
    "function", [lambda: None, make, functools.partial(listed, [])], ids=["lambda", "def", "partial"]
)
def test_a_callable_that_takes_nothing_is_bound_with_a_warning(triton, caplog, function, tensors):
    triton.bind("model", function, *tensors)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "takes no arguments: model model can be bound, but each of its requests will fail" in warning


def test_the_decorator_model_of_the_class_is_refused():
    with pytest.raises(PyTritonValidationError, match=r"make an object first, as in triton = Triton\(\)"):

        @Triton.model
        def shout(text: str) -> str: ...


def test_each_of_several_callables_is_checked(triton):
    with pytest.raises(PyTritonValidationError, match=r"two\(x, y\) does not fit model 'model'"):
        triton.bind("model", [listed, two], IN, OUT)


def test_without_batching_the_message_names_sample(triton):
    with pytest.raises(PyTritonValidationError, match="put @sample above the function"):
        triton.bind("model", two, IN, OUT, config=ModelConfig(batching=False))


@pytest.mark.parametrize(
    "factory", [make, make_for, lambda device=None: listed, Plain, functools.partial(make_for, "cpu")]
)
def test_a_factory_of_processes_is_called_without_arguments_or_with_a_device(triton, factory):
    triton.bind("model", Processes(factory, count=1), IN, OUT)


@pytest.mark.parametrize("factory", [listed, batch(two), triton_context(listed), Model().listed])
def test_a_factory_that_is_the_callable_itself_is_refused(triton, factory):
    with pytest.raises(
        PyTritonValidationError, match=r"factory .* returns the inference callable, such as lambda: infer"
    ):
        triton.bind("model", Processes(factory, count=1), IN, OUT)


def test_a_configuration_is_checked_and_copied_when_it_is_bound(triton):
    batcher = DynamicBatcher()
    config = ModelConfig(batcher=batcher)
    batcher.preferred_batch_size = 4
    with pytest.raises(PyTritonBadParameterError, match=r"preferred_batch_size must be a list such as \[4, 8\], got 4"):
        triton.bind("model", listed, IN, OUT, config=config)
    batcher.preferred_batch_size = [4]
    triton.bind("model", listed, IN, OUT, config=config)
    config.max_batch_size = 2
    batcher.preferred_batch_size.append(8)
    bound = triton.triton_context.model_configs[listed]
    assert (bound.max_batch_size, bound.batcher.preferred_batch_size) == (4, [4])


def test_a_tensor_is_checked_and_copied_when_it_is_bound(triton):
    tensor = Tensor(shape=(1,), dtype=np.float32)
    tensor.name, tensor.dtype, tensor.shape = "x", "complex64", [1, 2]
    with pytest.raises(PyTritonBadParameterError, match="dtype 'complex64' is not supported"):
        triton.bind("model", listed, [tensor], OUT)
    tensor.dtype = "int8"
    triton.bind("model", listed, [tensor], OUT)
    tensor.shape = (3,)
    (spec,) = triton.triton_context.model_configs[listed].inputs
    assert (spec.name, spec.dtype, spec.shape) == ("x", np.int8, (1, 2))


def test_a_second_bind_of_a_name_says_what_else_there_is(triton):
    triton.bind("model", listed, IN, OUT)
    with pytest.raises(PyTritonInvalidOperationError, match=r"rebind\(\).*unbind\(\).*replace=True"):
        triton.bind("model", listed, IN, OUT)


def test_a_bind_that_replaces_forgets_the_version_that_was_bound(triton):
    triton.bind("model", listed, IN, OUT)
    triton.bind("model", listed, IN, OUT, model_version=2)
    triton.unbind("model", 1)
    triton.bind("model", batch(two), IN, OUT, model_version=2, config=ModelConfig(max_batch_size=9), replace=True)
    configs = triton.triton_context.model_configs
    assert listed not in configs
    assert (configs[two].model_version, configs[two].max_batch_size) == (2, 9)


def test_a_bind_that_replaces_nothing_binds(triton):
    triton.bind("model", listed, IN, OUT, replace=True)
    assert triton.triton_context.model_configs[listed].model_name == "model"


def test_what_is_bound_stays_if_its_replacement_is_wrong(triton):
    triton.bind("model", listed, IN, OUT)
    with pytest.raises(PyTritonValidationError):
        triton.bind("model", two, IN, OUT, replace=True)
    with pytest.raises(PyTritonInvalidOperationError, match="is bound already"):
        triton.bind("MODEL", listed, IN, OUT, replace=True)
    assert listed in triton.triton_context.model_configs


async def coroutine(requests):
    return requests


@pytest.mark.parametrize(
    ("bound", "given", "rule"),
    [
        (listed, [listed, listed], "has 1 instances, and got 2 callables; give one for each"),
        ([listed, listed], listed, "has 2 instances, and got 1 callables"),
        (listed, coroutine, "instance 0 of model 'model' was a plain function, and the new one is async"),
        ([coroutine, listed], [coroutine, coroutine], "instance 1 of model 'model' was a plain function, and"),
        (coroutine, listed, "was async, and the new one is a plain function"),
        (listed, Processes(make), "was bound with callables of this process, not with Processes"),
        (Processes(make, count=1), listed, "was bound with pytriton.workers.Processes; give Processes"),
    ],
)
def test_a_rejected_rebind_names_the_rule(triton, bound, given, rule):
    triton.bind("model", bound, IN, OUT)
    with pytest.raises(PyTritonValidationError, match=re.escape(rule) + r".* bind\(\.\.\., replace=True\)"):
        triton.rebind("model", given)


def test_stopping_what_was_never_started_does_nothing(triton):
    triton.bind("model", listed, IN, OUT)
    assert triton.stop() is False
    triton.bind("other", listed, IN, OUT)
    assert triton.stop() is False


def test_leaving_the_context_ends_what_was_never_started(tmp_path):
    triton = RemoteTriton("localhost:1", tmp_path / "workspace")
    triton.__exit__()
    assert not (tmp_path / "workspace").exists()
    with pytest.raises(PyTritonInvalidOperationError, match="was stopped; create a new one"):
        triton.bind("model", listed, IN, OUT)
