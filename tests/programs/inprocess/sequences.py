"""Two sequences at once, like the sequence examples of the clients."""
import sys

import numpy as np
from pytriton import inprocess as tritonserver

START, END = 1, 2
server = tritonserver.Server(model_repository=sys.argv[1], model_control_mode=tritonserver.ModelControlMode.EXPLICIT)
server.start(wait_until_ready=True)
model = server.load("accumulator")
values = [11, 7, 5, 3, 2, 0, 1]
results = {1000: [], np.uint64(1001): []}
for i, v in enumerate(values):
    flags = 0
    if i == 0:
        flags |= START
    if i == len(values) - 1:
        flags |= END
    for corrid, sign in ((1000, 1), (np.uint64(1001), -1)):
        (response,) = model.infer(inputs={"INPUT": np.full((1, 1), sign * v, dtype=np.int32)}, correlation_id=corrid, flags=flags)
        results[corrid].append(int(np.from_dlpack(response.outputs["OUTPUT"])[0, 0]))
print([results[k] for k in (1000, 1001)])
if results[1000] != list(np.cumsum(values)) or results[1001] != [-x for x in np.cumsum(values)]:
    sys.exit(1)
try:
    list(model.infer(inputs={"INPUT": np.zeros((1, 1), np.int32)}, correlation_id=3))
    print("no start, no error?")
    sys.exit(1)
except tritonserver.InvalidArgumentError as e:
    print("must start:", "start" in str(e).lower())

params = server.load("params")
for corrid in (7, 2**63, "text"):
    (r,) = params.infer(inputs={"NUMBERS": [0.0]}, correlation_id=corrid, flags=START | END)
    print(r.outputs["SEEN"].to_string_array()[0][:80])
server.stop()
