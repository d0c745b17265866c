"""Unit tests of the server's Python API, with unittest, one server for each test."""
import asyncio
import json
import os
import queue
import sys
import tempfile
import time
import unittest

import numpy
from pytriton import inprocess as tritonserver

try:
    import cupy
except ImportError:
    cupy = None
try:
    import torch
except ImportError:
    torch = None

module_directory = os.path.split(os.path.abspath(__file__))[0]
test_model_directory = os.path.abspath(os.path.join(module_directory, "models"))
if "--models" in sys.argv:
    at = sys.argv.index("--models")
    test_model_directory = sys.argv[at + 1]
    del sys.argv[at : at + 2]

server_options = tritonserver.Options(
    server_id="TestServer",
    model_repository=test_model_directory,
    log_error=True,
    log_warn=True,
    exit_on_error=True,
    strict_model_config=False,
    model_control_mode=tritonserver.ModelControlMode.EXPLICIT,
    exit_timeout=10,
)


class ModelTests(unittest.TestCase):
    def test_create_request(self):
        server = tritonserver.Server(server_options).start(wait_until_ready=True)
        server.load("identity", {"config": json.dumps({"backend": "python", "parameters": {"decoupled": {"string_value": "False"}}})})
        request = server.models()["identity"].create_request()
        self.assertIsInstance(request, tritonserver.InferenceRequest)
        self.assertEqual(request.model.name, "identity")
        request = server.model("identity").create_request(request_id="1", model="no matter", timeout=7)
        self.assertEqual((request.model.name, request.request_id, request.timeout), ("identity", "1", 7))
        server.stop()


class AllocatorTests(unittest.TestCase):
    def test_allocate_on_cpu_and_reshape(self):
        allocator = tritonserver.default_memory_allocators[tritonserver.MemoryType.CPU]
        memory_buffer = allocator.allocate(memory_type=tritonserver.MemoryType.CPU, memory_type_id=0, size=200)
        cpu_array = memory_buffer.owner
        self.assertEqual(memory_buffer.size, 200)
        fp32_size = 4
        tensor = tritonserver.Tensor(tritonserver.DataType.FP32, shape=(5, 10), memory_buffer=memory_buffer)
        cpu_fp32_array = numpy.from_dlpack(tensor)
        self.assertEqual(cpu_array.ctypes.data, cpu_fp32_array.ctypes.data)
        self.assertEqual(cpu_fp32_array.dtype, numpy.float32)
        self.assertEqual(cpu_fp32_array.nbytes, 200)
        self.assertEqual(cpu_fp32_array.size, 200 // fp32_size)

    @unittest.skipIf(cupy is None, "no cupy")
    def test_allocate_on_gpu_and_reshape(self):
        class Allocator(tritonserver.MemoryAllocator):
            def allocate(self, size, memory_type, memory_type_id):
                return tritonserver.MemoryBuffer.from_dlpack(cupy.empty(size, dtype=numpy.byte))

        buffer = Allocator().allocate(200, tritonserver.MemoryType.GPU, 0)
        self.assertEqual(buffer.size, 200)
        tensor = tritonserver.Tensor(tritonserver.DataType.FP32, shape=(5, 10), memory_buffer=buffer)
        gpu = cupy.from_dlpack(tensor)
        self.assertEqual(gpu.nbytes, 200)
        self.assertEqual(buffer.data_ptr, gpu.data.ptr)

    def test_memory_allocator_exception(self):
        class Allocator(tritonserver.MemoryAllocator):
            def allocate(self, size, memory_type, memory_type_id):
                raise Exception("foo")

        with tritonserver.Server(server_options) as server:
            model = server.load("identity")
            with self.assertRaisesRegex(tritonserver.InternalError, "foo"):
                for _ in model.infer(inputs={"string_input": [["hi"]]}, output_memory_type="cpu", output_memory_allocator=Allocator()):
                    pass

    def test_unsupported_memory_type(self):
        with tritonserver.Server(server_options) as server:
            server.load("identity")
            if cupy is None:
                with self.assertRaises(tritonserver.InvalidArgumentError):
                    server.model("identity").infer(inputs={"string_input": [["hi"]]}, output_memory_type="gpu")
            with self.assertRaises(tritonserver.InvalidArgumentError):
                server.model("identity").infer(inputs={"string_input": [["hi"]]}, output_memory_type="cpu:1:2")


class TensorTests(unittest.TestCase):
    @unittest.skipIf(cupy is None, "no cupy")
    def test_cpu_to_gpu(self):
        cpu_array = numpy.random.rand(1, 3, 100, 100).astype(numpy.float32)
        cpu_tensor = tritonserver.Tensor.from_dlpack(cpu_array)
        gpu_tensor = cpu_tensor.to_device("gpu:0")
        gpu_array = cupy.from_dlpack(gpu_tensor)
        self.assertEqual(gpu_array.device, cupy.cuda.Device(0))
        numpy.testing.assert_array_equal(cpu_array, gpu_array.get())
        memory_buffer = gpu_tensor.memory_buffer
        self.assertEqual(memory_buffer.memory_type, tritonserver.MemoryType.GPU)
        self.assertEqual(gpu_tensor.to_host().memory_type, tritonserver.MemoryType.CPU)

    @unittest.skipIf(cupy is None, "no cupy")
    def test_gpu_tensor_from_dl_pack(self):
        cupy_array = cupy.ones([100]).astype(cupy.float64)
        tensor = tritonserver.Tensor.from_dlpack(cupy_array)
        self.assertEqual(cupy_array.data.ptr, tensor.data_ptr)
        self.assertEqual(cupy_array.nbytes, tensor.size)
        self.assertEqual(cupy_array.__dlpack_device__(), tensor.__dlpack_device__())

    @unittest.skipIf(torch is None, "no torch")
    def test_tensor_from_torch(self):
        t = torch.randn(3, 5)
        tensor = tritonserver.Tensor.from_dlpack(t)
        self.assertEqual(tensor.data_ptr, t.data_ptr())
        self.assertTrue(torch.equal(torch.from_dlpack(tensor), t))

    def test_tensor_from_numpy(self):
        cpu_array = numpy.random.rand(1, 3, 100, 100).astype(numpy.float32)
        tensor = tritonserver.Tensor.from_dlpack(cpu_array)
        self.assertEqual(cpu_array.ctypes.data, tensor.data_ptr)
        self.assertEqual(cpu_array.nbytes, tensor.size)
        self.assertEqual(cpu_array.__dlpack_device__(), tensor.__dlpack_device__())
        numpy.testing.assert_array_equal(numpy.from_dlpack(tensor), cpu_array)

    def test_strings(self):
        for given in (["a", "bé", ""], [b"a", b"\xff\x00", b""], numpy.array(["a", "bb"]), numpy.array([b"a", b"bb"]), numpy.array([["x"], ["y"]], dtype=numpy.object_)):
            tensor = tritonserver.Tensor.from_bytes_array(given)
            back = tensor.to_bytes_array()
            self.assertEqual(back.dtype, numpy.object_)
            self.assertEqual(tuple(tensor.shape), numpy.shape(given))
            want = [x.encode() if isinstance(x, str) else bytes(x) for x in numpy.ravel(numpy.array(given, dtype=object)).tolist()]
            self.assertEqual(back.ravel().tolist(), want)
        tensor = tritonserver.Tensor.from_string_array(["a", "bé"])
        self.assertEqual(tensor.to_string_array().tolist(), ["a", "bé"])
        self.assertEqual(tensor.to_string_array().dtype.kind, "U")
        with self.assertRaises(tritonserver.InvalidArgumentError):
            tritonserver.Tensor.from_dlpack(numpy.ones(3)).to_string_array()
        with self.assertRaises(tritonserver.InvalidArgumentError):
            tensor.__dlpack__()

    def test_not_contiguous(self):
        with self.assertRaises(tritonserver.InvalidArgumentError):
            tritonserver.Tensor.from_dlpack(numpy.ones((3, 4)).T)
        with self.assertRaises(tritonserver.InvalidArgumentError):
            tritonserver.Tensor.from_dlpack(numpy.ones(3, dtype=numpy.complex64))
        with self.assertRaises(tritonserver.InvalidArgumentError):
            tritonserver.MemoryBuffer.from_dlpack("no tensor")


class ServerTests(unittest.TestCase):
    def test_not_started(self):
        server = tritonserver.Server()
        for call in (server.ready, server.live, server.metadata, server.metrics, server.stop, server.models, lambda: server.load("x")):
            with self.assertRaises(tritonserver.InvalidArgumentError):
                call()

    def test_invalid_option_type(self):
        server = tritonserver.Server(server_id=1)
        with self.assertRaises(TypeError):
            server.start()
        server = tritonserver.Server(model_repository=1)
        with self.assertRaises(TypeError):
            server.start()

    def test_invalid_repo(self):
        with self.assertRaises(tritonserver.InternalError):
            tritonserver.Server(model_repository="foo").start()

    def test_no_repo(self):
        with self.assertRaises(tritonserver.InvalidArgumentError):
            tritonserver.Server(model_repository=None).start()
        with self.assertRaises(tritonserver.InvalidArgumentError):
            tritonserver.Server().start()

    def test_ready(self):
        server = tritonserver.Server(server_options).start()
        self.assertTrue(server.ready())
        self.assertTrue(server.live())
        with self.assertRaises(tritonserver.InvalidArgumentError):
            server.start()
        server.stop()
        with self.assertRaises(tritonserver.InvalidArgumentError):
            server.ready()
        server.start(wait_until_ready=True, polling_interval=0.01, timeout=20)
        self.assertTrue(server.ready())
        self.assertEqual(server.metadata()["name"], "TestServer")
        self.assertIn("nv_", server.metrics())
        server.stop()


class InferenceTests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = tritonserver.Server(server_options).start(wait_until_ready=True)
        cls.loaded = None

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def load(self, decoupled):
        if self.loaded == decoupled:
            return self.server.model("identity")
        InferenceTests.loaded = decoupled
        return self.server.load("identity", {"config": json.dumps({"backend": "python", "parameters": {"decoupled": {"string_value": str(decoupled)}}})})

    def test_basic_inference(self):
        self.load(True)
        self.assertTrue(self.server.ready())
        fp16_input = numpy.random.rand(1, 100).astype(dtype=numpy.float16)
        n = 0
        for response in self.server.model("identity").infer(inputs={"fp16_input": fp16_input}, output_memory_type="cpu", raise_on_error=True):
            if response.outputs:
                fp16_output = numpy.from_dlpack(response.outputs["fp16_output"])
                numpy.testing.assert_array_equal(fp16_input, fp16_output)
                n += 1
        self.assertEqual(n, 1)

    def test_all_dtypes(self):
        model = self.load(False)
        for dtype in (bool, "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"):
            dtype = numpy.dtype(dtype)
            name = {"b": "bool", "u": "uint%d" % (8 * dtype.itemsize), "i": "int%d" % (8 * dtype.itemsize), "f": "fp%d" % (8 * dtype.itemsize)}[dtype.kind]
            for given in (
                numpy.array([[0, 1, 2, 3]]).astype(dtype),
                numpy.arange(12).reshape(3, 4).astype(dtype),
                numpy.arange(24).reshape(6, 4).astype(dtype)[::2, ::-1],
                numpy.zeros((2, 0), dtype),
                numpy.asfortranarray(numpy.arange(12).reshape(3, 4).astype(dtype)),
                numpy.arange(12).reshape(3, 4).astype(dtype.newbyteorder(">")),
            ):
                (response,) = model.infer(inputs={name + "_input": given})
                tensor = response.outputs[name + "_output"]
                self.assertEqual(tensor.data_type, getattr(tritonserver.DataType, name.upper()))
                found = numpy.from_dlpack(tensor)
                self.assertEqual(found.dtype, dtype)
                numpy.testing.assert_array_equal(found, given)

    def test_lists_and_scalars(self):
        model = self.load(False)
        (response,) = model.infer(inputs={"int64_input": [[1, 2], [3, 4]], "fp64_input": [[0.5], [1.5]], "bool_input": [[True], [False]], "string_input": [["a"], ["b"]]})
        self.assertEqual(numpy.from_dlpack(response.outputs["int64_output"]).tolist(), [[1, 2], [3, 4]])
        self.assertEqual(numpy.from_dlpack(response.outputs["fp64_output"]).tolist(), [[0.5], [1.5]])
        self.assertEqual(numpy.from_dlpack(response.outputs["bool_output"]).tolist(), [[True], [False]])
        self.assertEqual(response.outputs["string_output"].to_string_array().tolist(), [["a"], ["b"]])

    def test_strings(self):
        model = self.load(False)
        for given in ([["a", "é"], ["", "long " * 1000]], numpy.array([[b"a", b"\x00\xff"]], dtype=object), numpy.array([["x", "yy"]]), numpy.array([[b"x", b"yy"]]), tritonserver.Tensor.from_string_array([["t"]])):
            (response,) = model.infer(inputs={"string_input": given})
            got = response.outputs["string_output"].to_bytes_array()
            want = given.to_bytes_array() if isinstance(given, tritonserver.Tensor) else numpy.array(given, dtype=object)
            self.assertEqual(got.tolist(), [[x.encode() if isinstance(x, str) else bytes(x) for x in row] for row in want.tolist()])

    def test_parameters(self):
        model = self.server.load("params")
        (response,) = model.infer(
            inputs={"NUMBERS": numpy.array([1.0, 2.5])},
            parameters={"s": "text", "i": 3, "b": True, "f": 0.5, "n": numpy.int64(9)},
            request_id="r1",
            correlation_id=7,
            flags=1,
        )
        seen = json.loads(response.outputs["SEEN"].to_string_array()[0])
        self.assertEqual(seen["parameters"], {"s": "text", "i": 3, "b": True, "f": 0.5, "n": 9})
        self.assertEqual((seen["id"], seen["correlation_id"], seen["flags"]), ("r1", 7, 1))
        self.assertEqual(seen["wanted"], ["SEEN", "SUM"])
        self.assertEqual(response.request_id, "r1")
        self.assertEqual(numpy.from_dlpack(response.outputs["SUM"]).tolist(), [3.5])
        for bad in ({"x": None}, {"x": [1]}, {1: "x"}):
            with self.assertRaises(tritonserver.InvalidArgumentError):
                model.infer(inputs={"NUMBERS": numpy.ones(2)}, parameters=bad)
        with self.assertRaises(tritonserver.InvalidArgumentError):
            model.infer(inputs={"NUMBERS": object()})
        with self.assertRaises(tritonserver.InvalidArgumentError):
            model.infer(inputs={"NUMBERS": numpy.ones(2)}, response_queue=asyncio.Queue())

    def test_response_queue(self):
        model = self.server.load("counter")
        responses = queue.SimpleQueue()
        list(model.infer(inputs={"IN": numpy.array([4], dtype=numpy.int32)}, response_queue=responses))
        got = []
        while True:
            response = responses.get(timeout=10)
            if response.outputs:
                got.append(int(numpy.from_dlpack(response.outputs["OUT"])[0]))
            if response.final:
                break
        self.assertEqual(got, [0, 1, 2, 3])

    def test_async(self):
        model = self.load(True)

        async def main():
            async def one(i):
                async for response in model.async_infer(inputs={"int32_input": numpy.full((1, 2), i, numpy.int32)}):
                    if response.outputs:
                        return numpy.from_dlpack(response.outputs["int32_output"]).tolist()

            return await asyncio.gather(*[one(i) for i in range(50)])

        self.assertEqual(asyncio.run(main()), [[[i, i]] for i in range(50)])

    def test_unknown(self):
        with self.assertRaises((tritonserver.NotFoundError, tritonserver.InvalidArgumentError)):
            self.server.model("no such model").infer(inputs={})
        with self.assertRaises(tritonserver.TritonError):
            self.server.load("no such model")
        with self.assertRaises(KeyError):
            self.server.models()["no such model"]


if __name__ == "__main__":
    unittest.main(verbosity=2)
