import sys
import numpy
import pytriton.inprocess as tritonserver

# BLS: one model asks the others
try:
    repo = sys.argv[1]
except:
    repo = "models"
server = tritonserver.Server(model_repository=repo, model_control_mode=tritonserver.ModelControlMode.EXPLICIT, startup_models=["params", "counter", "pipeline"], exit_timeout=10)
server.start(wait_until_ready=True, timeout=60)
for i in range(3):
    for r in server.model("pipeline", 1).infer(inputs={"x": numpy.arange(4) + float(i)}, output_memory_type="cpu"):
        print(numpy.from_dlpack(r.outputs["sums"]), numpy.from_dlpack(r.outputs["counted"]), r.model.version)
    # a list of doubles works, too
    r = next(server.models()["pipeline"].infer(inputs={"x": [0.5, 0.5]}))
print(numpy.from_dlpack(r.outputs["sums"]).tolist())
server.unload("params", wait_until_unloaded=True)
try:
    next(server.model("pipeline").infer(inputs={"x": [1.0]}))
    print("who answered?")
    sys.exit(1)
except tritonserver.TritonError as e:
    print("failed as it should")
server.stop()
