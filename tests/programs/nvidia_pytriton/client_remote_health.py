# prints: remote alive before bind True
# prints: remote alive with a model True
# prints: answer [10.]
# prints: remote alive after stop False
# prints: nobody there False
"""A side car that binds its model to somebody else's server and reports its health."""
import socket
import numpy as np
from pytriton.client import ModelClient
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import RemoteTriton, Triton, TritonConfig

_ports = []
for _ in range(4):
    s = socket.socket(); s.bind(("localhost", 0)); _ports.append(s)
_ports = [(s.getsockname()[1], s.close())[0] for s in _ports]

@batch
def plus(x):
    return {"y": x + 9}

host = Triton(config=TritonConfig(http_port=_ports[0], grpc_port=_ports[1], metrics_port=_ports[2]))
host.run()
try:
    remote = RemoteTriton("localhost:%d" % _ports[0], access_token=host.get_access_token())
    print("remote alive before bind", remote.is_alive())
    remote.connect()
    remote.bind("plus", plus, [Tensor(name="x", dtype=np.float64, shape=(1,))], [Tensor(name="y", dtype=np.float64, shape=(1,))], 1,
                ModelConfig(max_batch_size=2))
    print("remote alive with a model", remote.is_alive())
    c = ModelClient("localhost:%d" % _ports[0], "plus")
    c.__enter__()
    print("answer", c.infer_sample(np.ones(1))["y"])
    c.__exit__()
    remote.stop()
    print("remote alive after stop", remote.is_alive())
    r2 = RemoteTriton("localhost:%d" % _ports[3])
    print("nobody there", r2.is_alive())
    r2.stop()
finally:
    host.stop()
