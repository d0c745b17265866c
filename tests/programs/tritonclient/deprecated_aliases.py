# of 2020: the packages had other names
import sys
import warnings
warnings.filterwarnings("ignore")
try:
    import tritonhttpclient
    import tritongrpcclient
    from tritonclientutils import *
    import tritonshmutils.shared_memory as shm
except ImportError as e:
    print("gone:", e)
    print("PASS: aliases are gone")
    sys.exit(0)
import numpy as np

FLAGS_U, FLAGS_G = sys.argv[1], sys.argv[2]
for lib, url in ((tritonhttpclient, FLAGS_U), (tritongrpcclient, FLAGS_G)):
    try:
        client = lib.InferenceServerClient(url=url, verbose=False)
    except:
        print("cannot connect"); sys.exit(1)
    inputs = []
    for n in ["INPUT0", "INPUT1"]:
        inputs.append(lib.InferInput(n, [1, 16], np_to_triton_dtype(np.int32)))
        inputs[-1].set_data_from_numpy(np.full((1, 16), 21, dtype=np.int32))
    try:
        res = client.infer("simple", inputs)
        print(res.as_numpy("OUTPUT0"))
        assert (res.as_numpy("OUTPUT0") == 42).all()
        client.infer("simple", inputs, model_version="9")
        sys.exit(1)
    except InferenceServerException as e:
        print(lib.__name__, e.message())
handle = shm.create_shared_memory_region("alias", "/alias_of_2020", 64)
shm.set_shared_memory_region(handle, [np.arange(16, dtype=np.int32)])
print(shm.get_contents_as_numpy(handle, np.int32, [16]).sum())
shm.destroy_shared_memory_region(handle)
print("PASS: aliases")
