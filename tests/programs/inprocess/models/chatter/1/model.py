import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            prompt = pb_utils.get_input_tensor_by_name(request, "prompt").as_numpy()
            if prompt.size == 0 or prompt[0] == b"":
                sender.send(
                    pb_utils.InferenceResponse(error=pb_utils.TritonError("empty prompt", pb_utils.TritonError.INVALID_ARG)),
                    flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL,
                )
                continue
            words = prompt[0].decode("utf-8").split()
            for word in reversed(words):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("word", np.array([word.encode("utf-8")]))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
