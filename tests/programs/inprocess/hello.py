# the README example, more or less
import sys

import numpy as np
import pytriton.inprocess as tritonserver

repository = sys.argv[1] if len(sys.argv) > 1 else "models"

server = tritonserver.Server(model_repository=repository, model_control_mode=tritonserver.ModelControlMode.EXPLICIT, strict_model_config=False)
server.start(True)
print(server.metadata()["name"], server.metadata()["version"])
model = server.load("identity")
print(model, model.ready())

responses = list(model.infer(inputs={"string_input": [["hello"], ["triton"]], "fp16_input": np.array([[1.0], [2.5]], dtype=np.float16)}))
for response in responses:
    print(response.outputs["string_output"].to_string_array().tolist())
    print(np.from_dlpack(response.outputs["fp16_output"]).tolist())
    print(response.model.name, response.model.version, response.final, repr(response.request_id))

server.unload(model, wait_until_unloaded=True)
if model.ready():
    print("still there?!")
    sys.exit(1)
server.stop()
