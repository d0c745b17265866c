from pytriton.inprocess import *
import numpy as np
import sys

# every data type there and back, by dlpack
server = Server(model_repository=sys.argv[1], model_control_mode=ModelControlMode.EXPLICIT, strict_model_config=False).start(wait_until_ready=True)
model = server.load("identity")
bad = 0
NUMPY = {
    DataType.BOOL: bool,
    DataType.UINT8: np.uint8,
    DataType.UINT16: np.uint16,
    DataType.UINT32: np.uint32,
    DataType.UINT64: np.uint64,
    DataType.INT8: np.int8,
    DataType.INT16: np.int16,
    DataType.INT32: np.int32,
    DataType.INT64: np.int64,
    DataType.FP16: np.float16,
    DataType.FP32: np.float32,
    DataType.FP64: np.float64,
}
assert DataType.INVALID not in NUMPY
for t, dt in NUMPY.items():
    dt = np.dtype(dt)
    a = (np.random.rand(3, 4) * 100).astype(dt)
    tensor = Tensor.from_dlpack(a)
    assert tensor.data_type == t and tensor.size == a.nbytes and tensor.data_ptr == a.ctypes.data, t
    for given in (a, tensor, a.tolist() if t in (DataType.FP64, DataType.BOOL, DataType.INT64) else a[:], a[::-1], a[:, 1:3], a.T[:, :2], a[:, :0], a[0][None]):
        r = next(model.infer(inputs={t.name.lower() + "_input": given}))
        out = np.from_dlpack(r.outputs[t.name.lower() + "_output"])
        want = np.from_dlpack(given) if isinstance(given, Tensor) else np.array(given, dt)
        if not (out.dtype == dt and out.shape == want.shape and (out == want).all()):
            print("WRONG", t, given, out)
            bad = 1
    print(t.name, int(t), "ok")

strings = [["", "a", "ä" * 300], ["\x00", "new\nline", "end"]]
for given in (strings, np.array(strings, dtype=object), np.array(strings, dtype=np.object_)[::-1], Tensor.from_string_array(np.array(strings, dtype=object)), np.array([["x", "yyy"]]), np.array([[b"x", b"yyy"]])):
    r = next(model.infer(inputs={"string_input": given}))
    out = r.outputs["string_output"]
    want = given if isinstance(given, Tensor) else Tensor.from_string_array(np.array(given, dtype=object))
    if out.to_bytes_array().tolist() != want.to_bytes_array().tolist():
        print("WRONG", given)
        bad = 1
print("BYTES", int(DataType.BYTES), r.outputs["string_output"].data_type == DataType.BYTES, "ok")
for wrong in (np.array([1 + 2j]), np.array(["2020-01-01"], "M8[D]"), None, {"a": 1}, object(), [[1], [1, 2]]):
    try:
        model.infer(inputs={"fp32_input": wrong})
        print("took", wrong)
        bad = 1
    except InvalidArgumentError:
        pass
bf16 = Tensor(DataType.BF16, (2,), MemoryBuffer.from_dlpack(np.array([0x3F80, 0x4000], np.uint16)))
print("BF16", bf16.size, bf16.__dlpack_device__())
server.stop()
sys.exit(bad)
