# IN: how many responses; FAIL_AT: after how many there is an error
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            n = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
            fail = pb_utils.get_input_tensor_by_name(request, "FAIL_AT")
            fail = None if fail is None else int(fail.as_numpy().item())
            threading.Thread(target=self.count, args=(request.get_response_sender(), n, fail)).start()
        return None

    def count(self, sender, n, fail):
        for i in range(n):
            if sender.is_cancelled():
                error = pb_utils.TritonError("nobody listens", pb_utils.TritonError.CANCELLED)
                sender.send(pb_utils.InferenceResponse(error=error), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                return
            if fail == i:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("cannot count to %d" % (i + 1))))
                continue
            out = pb_utils.Tensor("OUT", np.array([i], dtype=np.int32))
            sender.send(pb_utils.InferenceResponse([out]))
            if n > 1000:
                time.sleep(0.01)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
