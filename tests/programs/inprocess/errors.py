"""Which exception when."""
import os
import sys
import tempfile

import numpy as np
from pytriton import inprocess as tritonserver

models = sys.argv[1]
for name in "UnknownError InternalError NotFoundError InvalidArgumentError UnavailableError UnsupportedError AlreadyExistsError CancelledError".split():
    if not issubclass(getattr(tritonserver, name), tritonserver.TritonError):
        print(name)
        sys.exit(1)
assert issubclass(tritonserver.TritonError, Exception)


def what(f, *args, **kwargs):
    try:
        f(*args, **kwargs)
    except tritonserver.NotFoundError as e:
        return "NotFoundError"
    except tritonserver.AlreadyExistsError as e:
        return "AlreadyExistsError"
    except tritonserver.UnknownError as e:
        return "UnknownError"
    except tritonserver.CancelledError as e:
        return "CancelledError"
    except tritonserver.TritonError as e:
        return type(e).__name__
    except Exception as e:
        return "!" + type(e).__name__
    return "nothing"


print("no repository", what(tritonserver.Server().start))
print("None", what(tritonserver.Server(model_repository=None).start))
print("missing", what(tritonserver.Server(model_repository="/no/such/place").start))
print("both", what(tritonserver.Server, tritonserver.Options(), server_id="x"))
print("type", issubclass(tritonserver.InvalidArgumentError, Exception), what(tritonserver.Server(server_id=1).start))
try:
    tritonserver.Server(server_id=1).start()
except TypeError:
    print("TypeError, too")
broken = tempfile.mkdtemp()
os.makedirs(broken + "/bad/1")
open(broken + "/bad/config.pbtxt", "w").write('backend: "python"')
open(broken + "/bad/1/model.py", "w").write("import no_such_module_at_all\n")
print("broken", what(tritonserver.Server(model_repository=broken).start))
server = tritonserver.Server(model_repository=broken, exit_on_error=False, strict_readiness=True).start()
print("goes on", server.live(), server.ready(), server.models()["bad", 1].state, "no_such_module" in server.models()["bad", 1].reason)
print("timeout", what(server.stop) , what(server.stop))
server = tritonserver.Server(model_repository=broken, exit_on_error=False)
print("not ready", what(server.start, wait_until_ready=True, polling_interval=0.1, timeout=0.5))
print("bad model", what(server.model("bad").infer, inputs={}))
server.stop()

server = tritonserver.Server(model_repository=models, model_control_mode=tritonserver.ModelControlMode.EXPLICIT)
with server:
    m = server.load("params")
    print("twice", what(server.register_model_repository, models), what(server.start))
    print("unknown input", what(m.infer, inputs={"NO": [1.0]}))
    print("dtype", what(m.infer, inputs={"NUMBERS": np.zeros(1, np.int8)}))
    print("parameter", what(m.infer, inputs={"NUMBERS": [1.0]}, parameters={"x": [1]}))
    print("object", what(m.infer, inputs={"NUMBERS": object()}))
    print("field", what(m.infer, no_such_field=1))
    print("not a request", what(m.infer, "request"))
    print("version", what(server.model("params", 9).infer, inputs={"NUMBERS": [1.0]}))
    print("unload", what(server.unload, "never heard of"))
    print("mode", what(server.poll_model_repository))
print("stopped", what(server.metadata), what(m.infer, inputs={"NUMBERS": [1.0]}), what(m.ready))
