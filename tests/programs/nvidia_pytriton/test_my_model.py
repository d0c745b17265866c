"""Unit tests of inference functions: no server, no bind."""
import copy
import pickle
import unittest

import numpy as np

from pytriton.decorators import (
    ConstantPadder, ModelConfigDict, TritonContext, batch, convert_output, fill_optionals, first_value,
    get_inference_request_batch_size, get_model_config, get_triton_context, group_by_keys, group_by_values, pad_batch, sample, triton_context,
)
from pytriton.exceptions import PyTritonBadParameterError, PyTritonRuntimeError, PyTritonValidationError
from pytriton.model_config import DynamicBatcher
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.proxy.types import Request, Response

input_requests = [
    {"mul": np.array([[1.0], [2.0]]), "b": np.array([[3.0], [4.0]])},
    Request({"mul": np.array([[5.0]]), "b": np.array([[6.0]])}, {"p": 1}),
]
CONFIG = TritonModelConfig(
    model_name="m", max_batch_size=8, batcher=DynamicBatcher(preferred_batch_size=[4]),
    inputs=[TensorSpec("mul", (1,), np.float64), TensorSpec("b", (1,), np.float64, True)],
    outputs=[TensorSpec("o", (1,), np.float64)],
)


def prepare(wrapped, config=CONFIG):
    context = TritonContext()
    context.model_configs[wrapped] = config
    wrapped.__triton_context__ = context
    return context


class TestDecorators(unittest.TestCase):
    def test_batch(self):
        @batch
        def f(**inputs):
            self.assertEqual(inputs["mul"].shape, (3, 1))
            return {"o": inputs["mul"] * inputs["b"]}

        out = f(input_requests)
        self.assertEqual([o["o"].tolist() for o in out], [[[3.0], [8.0]], [[30.0]]])

    def test_list_output(self):
        @batch
        def f(mul, b):
            return [mul + b]

        prepare(f)
        self.assertEqual(f(input_requests)[1]["o"].tolist(), [[11.0]])

    def test_triton_context(self):
        @triton_context
        def f(requests, triton_context):
            return triton_context

        with self.assertRaises(PyTritonValidationError):
            f(input_requests)
        context = prepare(f)
        self.assertIs(f(input_requests), context)
        self.assertIs(get_triton_context(f, None), context)
        self.assertIs(get_model_config(f, None), CONFIG)

    def test_method(self):
        class A:
            @batch
            @triton_context
            def call(self, mul, b, triton_context):
                self.context = triton_context
                return [mul]

        a = A()
        context = TritonContext()
        context.model_configs[a.call] = CONFIG
        a.__triton_context__ = context
        self.assertEqual(a.call(input_requests)[0].keys(), {"o"})
        self.assertIs(a.context, context)

    def test_fill_optionals(self):
        @fill_optionals(b=np.array([9.0]))
        @batch
        def f(mul, b):
            return [b]

        prepare(f)
        self.assertEqual(f([{"mul": np.zeros((2, 1))}])[0]["o"].tolist(), [[9.0], [9.0]])

        @fill_optionals(c=np.array([9.0]))
        def g(requests): ...

        prepare(g)
        with self.assertRaises(PyTritonBadParameterError):
            g(input_requests)

    def test_groups(self):
        seen = []

        @group_by_keys
        @batch
        def f(**kw):
            seen.append(sorted(kw))
            return {"o": kw["mul"]}

        f([{"mul": np.zeros((1, 1))}, input_requests[0], {"mul": np.ones((1, 1))}])
        self.assertEqual(seen, [["b", "mul"], ["mul"]])

        @group_by_values("mul")
        def g(mul, b):
            return {"o": b, "n": np.full((len(b), 1), len(b))}

        out = g(mul=np.array([[1], [2], [1]]), b=np.array([[1], [2], [3]]))
        self.assertEqual(out["n"].ravel().tolist(), [2, 1, 2])
        with self.assertRaises(PyTritonRuntimeError):
            g(input_requests)

    def test_group_by_no_values(self):
        @batch
        @group_by_values()
        def f(mul, b):
            return {"o": mul}

        self.assertEqual(f(input_requests)[0]["o"].tolist(), [[1.0], [2.0]])

    def test_one_row_per_group(self):
        @group_by_values("mul")
        def f(mul, b):
            return {"o": b.sum(axis=0, keepdims=True)}

        out = f(mul=np.array([[1], [2], [1]]), b=np.array([[1], [2], [3]]))
        self.assertEqual(out["o"].ravel().tolist(), [4, 2, 4])

    def test_pad_batch(self):
        @pad_batch
        def f(mul, b):
            self.assertEqual(len(mul), 4)
            return {"o": b}

        prepare(f)
        self.assertEqual(len(f(mul=np.zeros((3, 1)), b=np.zeros((3, 1)))["o"]), 3)

    def test_first_value(self):
        @batch
        @first_value("b")
        def f(mul, b):
            self.assertTrue(np.isscalar(b))
            return [mul * b]

        prepare(f)
        same = [{"mul": np.ones((2, 1)), "b": np.full((2, 1), 3.0)}]
        self.assertEqual(f(same)[0]["o"].tolist(), [[3.0], [3.0]])
        with self.assertRaises(PyTritonRuntimeError):
            f(input_requests)
        for reserved in ("__triton_context__", "triton_context"):
            with self.assertRaises(PyTritonBadParameterError):
                first_value(reserved)

    def test_sample(self):
        @sample
        def f(mul, b):
            return {"o": mul + b}

        self.assertEqual(f([{"mul": np.ones(2), "b": np.ones(2)}])[0]["o"].tolist(), [2, 2])

    def test_request_is_a_dict(self):
        r = input_requests[1]
        self.assertIsInstance(r, dict)
        c = r.copy()
        c["x"] = np.zeros(1)
        self.assertEqual((len(r), len(c), c.parameters), (2, 3, {"p": 1}))
        self.assertEqual(set(r | {"z": 1}), {"mul", "b", "z"})
        self.assertEqual(set({"z": 1} | r), {"mul", "b", "z"})
        d = copy.deepcopy(r)
        self.assertEqual((d["mul"].tolist(), d.parameters), ([[5.0]], {"p": 1}))
        p = pickle.loads(pickle.dumps(r))
        self.assertEqual((type(p), p["mul"].tolist(), p.parameters), (Request, [[5.0]], {"p": 1}))
        self.assertEqual({**r}.keys(), {"mul", "b"})
        self.assertEqual(dict(r).keys(), r.data.keys())
        r.setdefault("new", np.zeros(1))
        r.update(other=np.zeros(1))
        r.pop("new"), r.pop("other")
        self.assertEqual(sorted(r), ["b", "mul"])
        self.assertIsInstance(Response({"a": np.zeros(1)}), dict)

    def test_keywords(self):
        self.assertEqual(get_inference_request_batch_size(inference_request=input_requests[0]), 2)
        self.assertEqual(convert_output([np.ones(1)], model_config=CONFIG), {"o": np.ones(1)})
        out = ConstantPadder()(batches_list=[{"a": np.ones((1, 2))}, {"a": np.ones((1, 3))}])
        self.assertEqual([o["a"].shape for o in out], [(1, 3), (1, 3)])
        d = ModelConfigDict()
        f = lambda x: x
        d.__setitem__(infer_callable=f, item=CONFIG)
        self.assertIs(d.__getitem__(infer_callable=f), CONFIG)
        d.__delitem__(infer_callable=f)
        self.assertEqual(len(d), 0)


if __name__ == "__main__":
    unittest.main()
