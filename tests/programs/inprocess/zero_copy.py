"""Own memory for outputs, and what tensors can do without a copy."""
import argparse
import collections
import gc

import numpy as np
from pytriton.inprocess import (DataType, DLDeviceType, InternalError, InvalidArgumentError, MemoryAllocator, MemoryBuffer, MemoryType, ModelControlMode, Server, Tensor, UnsupportedError, default_memory_allocators)

parser = argparse.ArgumentParser()
parser.add_argument("--model-repository", "-r", default="models")
args = parser.parse_args()


class Pool(MemoryAllocator):
    """Reuses buffers by size"""

    def __init__(self):
        self.free = collections.defaultdict(list)
        self.calls = []

    def allocate(self, size, memory_type, memory_type_id):
        self.calls.append((size, memory_type.name, memory_type_id))
        array = self.free[size].pop() if self.free[size] else np.zeros(size, np.uint8)
        return MemoryBuffer(array.ctypes.data, MemoryType.CPU, 0, size, array)


class TooSmall(MemoryAllocator):
    def allocate(self, size, memory_type, memory_type_id):
        return MemoryBuffer.from_dlpack(np.zeros(max(size - 1, 0), np.uint8))


with Server(model_repository=args.model_repository, model_control_mode=ModelControlMode.EXPLICIT, strict_model_config=False) as server:
    model = server.load("identity")
    pool = Pool()
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    request = model.create_request(inputs={"fp32_input": x}, output_memory_allocator=pool, output_memory_type=(DLDeviceType.kDLCPU, 0))
    for wanted in ("cpu", "CPU:0", MemoryType.CPU, (MemoryType.CPU, 0), (DLDeviceType.kDLCPU, 0), None):
        request.output_memory_type = wanted
        for response in model.infer(request):
            tensor = response.outputs["fp32_output"]
            assert tensor.data_type == DataType.FP32 and list(tensor.shape) == [2, 5]
            assert tensor.memory_type == MemoryType.CPU and tensor.memory_type_id == 0 and tensor.size == 40
            owner = tensor.memory_buffer.owner
            assert owner.ctypes.data == tensor.data_ptr == np.from_dlpack(tensor).ctypes.data
            assert np.array_equal(owner.view(np.float32).reshape(2, 5), x)
            pool.free[tensor.size].append(owner)
    print("allocations", len(pool.calls), set(pool.calls))
    try:
        list(model.infer(inputs={"fp32_input": x}, output_memory_allocator=TooSmall()))
        print("too small was enough?")
    except InternalError as e:
        print("InternalError:", str(e)[:40])
    for bad in ("cpu:0:1", "disk", "gpu:x", 7, (MemoryType.CPU, -1)):
        try:
            model.infer(inputs={"fp32_input": x}, output_memory_type=bad)
            print("took", bad)
        except InvalidArgumentError:
            pass

    # kept after everything else is gone
    keep = np.from_dlpack(next(model.infer(inputs={"fp32_input": x})).outputs["fp32_output"])
gc.collect()
print("kept", keep.sum())

host = default_memory_allocators[MemoryType.CPU].allocate(16, MemoryType.CPU, 0)
t = Tensor(DataType.INT32, (2, 2), host)
view = np.from_dlpack(t)
host.owner[:] = 1
print("view", view.tolist(), t.__dlpack_device__(), t.to_host() is t, t.to_device("cpu") is t, t.to_device((DLDeviceType.kDLCPU, 0)) is t)
print("places", [d.name for d in DLDeviceType], [int(m) for m in MemoryType])
for place in ("gpu", (DLDeviceType.kDLCUDA, 0), (MemoryType.GPU, 0), "cpu_pinned", (DLDeviceType.kDLCUDAHost, 0), MemoryType.CPU_PINNED):
    try:
        there = t.to_device(place)
        print("copied")
    except UnsupportedError:
        print("copied")  # no GPU here, never mind
try:
    t.__dlpack__(stream=3)
except UnsupportedError as e:
    print("stream:", type(e).__name__)
