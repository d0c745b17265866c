# %% cells of a notebook, run one after the other, some of them twice
import os
import numpy as np
from pytriton.client import ModelClient
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton

PORT = os.environ["PYTRITON_TRITON_CONFIG_HTTP_PORT"]  # Triton() reads them by itself
tensors = dict(inputs=[Tensor(name="x", dtype=np.float32, shape=(-1,))], outputs=[Tensor(name="y", dtype=np.float32, shape=(-1,))])

# %%
triton = Triton()
print("stopped:", triton.stop(), triton.stop())

# %%
@batch
def infer_func(x):
    return {"y": x + 1}

triton = Triton()
triton.bind("model", infer_func, **tensors)
triton.run()
triton.run()

# %%
def query():
    client = ModelClient("localhost:" + PORT, "model")
    y = client.infer_sample(np.array([1, 2], np.float32))["y"]
    client.__exit__()
    return y.tolist()

print(query(), triton.is_alive())

# %%
triton.stop()
triton.stop()
print(triton.is_alive())

# %% changed my mind
@batch
def infer_func(x):
    return {"y": x * 10}

triton = Triton()
triton.stop()   # to be sure that nothing runs
triton.bind("model", infer_func, **tensors, config=ModelConfig(max_batch_size=2))
triton.run()
print(query())
triton.__exit__()
print(triton.is_alive())
