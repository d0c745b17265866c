"""Every decorator, and the documented stacks of them, on every kind of callable."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import weakref
from functools import reduce

import numpy as np
import pytest
import wrapt

from pytriton import decorators
from pytriton.decorators import (
    ConstantPadder,
    TritonContext,
    batch,
    fill_optionals,
    first_value,
    group_by_keys,
    group_by_values,
    pad_batch,
    sample,
    triton_context,
)
from pytriton.decorators.signatures import wrapper_of
from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config import DynamicBatcher
from pytriton.proxy.types import Request, RequestBatch

# Each kind makes a callable from a stack of decorators and a body that maps arguments to a result.


def function(stack, body):
    @stack
    def infer(*args, **kwargs):
        return body(*args, **kwargs)

    return infer


def lambda_(stack, body):
    return stack(lambda *args, **kwargs: body(*args, **kwargs))


def method(stack, body):
    class Model:
        @stack
        def infer(self, *args, **kwargs):
            assert isinstance(self, Model)
            return body(*args, **kwargs)

    return Model().infer


def static_method(stack, body):
    class Model:
        @staticmethod
        @stack
        def infer(*args, **kwargs):
            return body(*args, **kwargs)

    return Model().infer


def class_method(stack, body):
    class Model:
        @classmethod
        @stack
        def infer(cls, *args, **kwargs):
            assert cls is Model
            return body(*args, **kwargs)

    return Model.infer


def callable_object(stack, body):
    class Model:
        @stack
        def __call__(self, *args, **kwargs):
            assert isinstance(self, Model)
            return body(*args, **kwargs)

    return Model()


def decorated_object(stack, body):
    class Model:
        def __call__(self, *args, **kwargs):
            return body(*args, **kwargs)

    return stack(Model())


def partial(stack, body):
    return functools.partial(function(stack, body))


def decorated_partial(stack, body):
    return stack(functools.partial(body))


def coroutine_function(stack, body):
    @stack
    async def infer(*args, **kwargs):
        await asyncio.sleep(0)
        return body(*args, **kwargs)

    return infer


def coroutine_method(stack, body):
    class Model:
        @stack
        async def infer(self, *args, **kwargs):
            return body(*args, **kwargs)

    return Model().infer


def coroutine_object(stack, body):
    class Model:
        @stack
        async def __call__(self, *args, **kwargs):
            return body(*args, **kwargs)

    return Model()


def generator_function(stack, body):
    @stack
    def infer(*args, **kwargs):
        yield body(*args, **kwargs)
        yield body(*args, **kwargs)

    return infer


def generator_method(stack, body):
    class Model:
        @stack
        def infer(self, *args, **kwargs):
            yield body(*args, **kwargs)
            yield body(*args, **kwargs)

    return Model().infer


def async_generator_function(stack, body):
    @stack
    async def infer(*args, **kwargs):
        yield body(*args, **kwargs)
        await asyncio.sleep(0)
        yield body(*args, **kwargs)

    return infer


def async_generator_object(stack, body):
    class Model:
        @stack
        async def __call__(self, *args, **kwargs):
            yield body(*args, **kwargs)
            yield body(*args, **kwargs)

    return Model()


KINDS = [
    function, lambda_, method, static_method, class_method, callable_object, decorated_object, partial,
    decorated_partial, coroutine_function, coroutine_method, coroutine_object, generator_function, generator_method,
    async_generator_function, async_generator_object,
]  # fmt: skip

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def results_of(returned):
    """All results of a call: one that was returned or awaited, or each that was yielded."""
    if inspect.isgenerator(returned):
        return list(returned)
    if inspect.isasyncgen(returned):
        return asyncio.run(_collected(returned))
    return [asyncio.run(returned) if inspect.iscoroutine(returned) else returned]


async def _collected(generator):
    return [result async for result in generator]


def count_of(kind):
    return 2 if "generator" in kind.__name__ else 1


INPUTS = {
    "x": ((-1,), np.float32),
    "scale": ((1,), np.float32),
    "mode": ((1,), np.bytes_),
    "bias": ((1,), np.float32),
}
OUTPUTS = {"y": ((-1,), np.float32), "rows": ((1,), np.int32)}


def requests_for_stacks():
    """Three requests of 2, 1 and 1 rows; only one of them has a bias, and the scale differs between rows."""
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    scale = np.array([[2], [3], [2], [3]], np.float32)
    return [
        Request({"x": x[:2], "scale": scale[:2]}),
        Request({"x": x[2:3], "scale": scale[2:3], "bias": np.array([[100]], np.float32)}),
        Request({"x": x[3:], "scale": scale[3:]}),
    ]


EXPECTED = [[[0, 2], [6, 9]], [[108, 110]], [[18, 21]]]


def chain(*stack):
    """Decorators, outermost first, as one."""
    return lambda target: reduce(lambda inner, decorate: decorate(inner), reversed(stack), target)


def scaled(x, scale, bias=0.0, mode=None, triton_context=None):
    """The model of the stacks: gets equal scales as one number, and returns a list in the order of the outputs."""
    assert isinstance(scale, np.float32)
    assert mode is None or mode.tolist() == [[b"fast"]] * len(x)
    assert triton_context is None or isinstance(triton_context, TritonContext)
    return [x * scale + bias, np.full((len(x), 1), len(x), np.int32)]


FILL = fill_optionals(mode=np.array([b"fast"]))
FILL_BIAS = fill_optionals(bias=np.zeros(1, np.float32))
BY_SCALE = group_by_values("scale")
FIRST_SCALE = first_value("scale")

# Outermost first, in the documented order.
STACKS = {
    "all": [FILL, group_by_keys, batch, BY_SCALE, pad_batch, FIRST_SCALE, triton_context],
    "all, every input filled": [
        FILL,
        FILL_BIAS,
        group_by_keys,
        batch,
        BY_SCALE,
        pad_batch,
        FIRST_SCALE,
        triton_context,
    ],
    "fill instead of groups": [FILL_BIAS, batch, BY_SCALE, FIRST_SCALE],
    "without padding": [FILL, group_by_keys, batch, BY_SCALE, FIRST_SCALE, triton_context],
    "with a padder": [group_by_keys, batch, group_by_values("scale", pad_fn=ConstantPadder()), FIRST_SCALE],
    "without filling": [group_by_keys, batch, BY_SCALE, pad_batch, FIRST_SCALE],
    "padding inside first_value": [group_by_keys, batch, BY_SCALE, FIRST_SCALE, pad_batch],
}


@every_kind
@pytest.mark.parametrize("name", STACKS)
def test_documented_stack_works_on_every_kind_of_callable(bind, kind, name):
    infer = kind(chain(*STACKS[name]), scaled)
    bind(infer, INPUTS, OUTPUTS, batcher=DynamicBatcher(preferred_batch_size=[2, 4]), max_batch_size=8)
    results = results_of(infer(requests_for_stacks()))
    assert len(results) == count_of(kind)
    for responses in results:
        assert [response["y"].tolist() for response in responses] == EXPECTED


@pytest.mark.parametrize("position", range(7))
def test_triton_context_works_at_any_position_of_the_stack(bind, position):
    def body(triton_context, **inputs):
        seen.append(triton_context.model_configs[infer])
        return scaled(**inputs)

    seen = []
    stack = [FILL, group_by_keys, batch, BY_SCALE, pad_batch, FIRST_SCALE]
    infer = function(chain(*stack[:position], triton_context, *stack[position:]), body)
    config = bind(infer, INPUTS, OUTPUTS, batcher=DynamicBatcher(preferred_batch_size=[2, 4]), max_batch_size=8)
    [responses] = results_of(infer(requests_for_stacks()))
    assert [response["y"].tolist() for response in responses] == EXPECTED
    assert len(seen) == 3
    assert all(found is config for found in seen)


X = np.arange(6, dtype=np.float32).reshape(3, 2)
ALONE = {
    "batch": (batch, lambda x: {"y": x + 1}, ([{"x": X[:2]}, {"x": X[2:]}],), {}, [[[1, 2], [3, 4]], [[5, 6]]]),
    "sample": (sample, lambda x: [x + 1], ([{"x": X[0]}],), {}, [[1, 2]]),
    "group_by_keys": (
        group_by_keys,
        lambda requests: [{"y": request["x"] + len(requests)} for request in requests],
        ([{"x": X[:1]}, {"z": X, "x": X[:1]}, {"x": X[:1]}],),
        {},
        [[[2, 3]], [[1, 2]], [[2, 3]]],
    ),
    "fill_optionals": (
        fill_optionals(scale=np.array([9], np.float32)),
        lambda requests: [{"y": request["scale"]} for request in requests],
        ([{"x": X}],),
        {},
        [[[9], [9], [9]]],
    ),
    "group_by_values": (
        group_by_values("scale"),
        lambda x, scale: [x * len(scale)],
        (),
        {"x": X, "scale": np.array([[1], [2], [1]])},
        [[0, 2], [2, 3], [8, 10]],
    ),
    "pad_batch": (pad_batch, lambda x: [x + len(x)], (), {"x": X}, [[8, 9], [10, 11], [12, 13]]),
    "first_value": (first_value("scale"), lambda scale: {"y": scale}, (), {"scale": np.array([[3], [3]])}, 3),
    "triton_context": (triton_context, lambda x, triton_context: {"y": x}, (), {"x": X}, X.tolist()),
}


@every_kind
@pytest.mark.parametrize("name", ALONE)
def test_each_decorator_alone_works_on_every_kind_of_callable(bind, kind, name):
    decorate, body, args, kwargs, expected = ALONE[name]
    infer = kind(decorate, body)
    bind(infer, INPUTS, {"y": ((-1,), np.float32)}, max_batch_size=8)
    results = results_of(infer(*args, **kwargs))
    assert len(results) == count_of(kind)
    for result in results:
        ys = [response["y"].tolist() for response in result] if isinstance(result, list) else result["y"].tolist()
        assert ys == expected


@pytest.mark.parametrize(
    ("kind", "is_kind"),
    [
        (coroutine_function, inspect.iscoroutinefunction),
        (coroutine_method, inspect.iscoroutinefunction),
        (generator_function, inspect.isgeneratorfunction),
        (generator_method, inspect.isgeneratorfunction),
        (async_generator_function, inspect.isasyncgenfunction),
    ],
)
def test_decorated_function_is_still_of_its_kind(kind, is_kind):
    assert is_kind(kind(chain(*STACKS["all"]), scaled))
    assert not is_kind(function(chain(*STACKS["all"]), scaled))


def test_decorated_function_keeps_its_name_and_docstring():
    decorated = chain(*STACKS["all"])(scaled)
    assert decorated.__name__ == "scaled"
    assert decorated.__doc__ == scaled.__doc__


def test_callable_that_serves_two_models_names_its_outputs_by_the_model_it_serves(bind):
    infer = batch(lambda x: [x])
    bind(infer, outputs={"first": ((-1,), np.float32)}, model_name="one")
    assert list(infer([{"x": X}])[0]) == ["first"]
    bind(infer, outputs={"second": ((-1,), np.float32)}, model_name="two")
    assert list(infer([{"x": X}])[0]) == ["second"]


def test_callables_that_need_no_configuration_work_without_a_model():
    infer = chain(group_by_keys, batch, group_by_values("x"))(lambda x: {"y": x})
    assert [response["y"].tolist() for response in infer([{"x": X[1:]}, {"x": X[:1]}])] == [
        X[1:].tolist(),
        X[:1].tolist(),
    ]
    with pytest.raises(PyTritonValidationError, match=r"Triton\.bind"):
        FILL(infer)([{"x": X}])


@every_kind
def test_a_call_leaves_no_reference_to_its_inputs(bind, kind):
    infer = kind(chain(*STACKS["fill instead of groups"]), scaled)
    bind(infer, INPUTS, OUTPUTS, max_batch_size=8)
    x, scale = np.ones((3, 2), np.float32), np.array([[1], [2], [1]], np.float32)
    gone = weakref.ref(x)
    requests = RequestBatch({"x": x, "scale": scale}, [2, 1], [Request(), Request()])
    gc.disable()
    try:
        results_of(infer(requests))
        del x, requests
        assert gone() is None
    finally:
        gc.enable()


def test_every_public_name_exists():
    for name in decorators.__all__:
        assert hasattr(decorators, name)


def test_wrapt_has_the_wrapper_of_a_decorated_function_under_the_name_that_we_use():
    def wrapper(wrapped, instance, args, kwargs):
        return wrapped(*args, **kwargs)

    assert wrapper_of(wrapt.FunctionWrapper(len, wrapper)) is wrapper
