# BLS: asks "params" for a sum and "counter" for a stream
import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.one(request) for request in requests]

    async def one(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "x")
        asked = [
            pb_utils.InferenceRequest(
                model_name="params",
                requested_output_names=["SUM"],
                inputs=[pb_utils.Tensor("NUMBERS", x.as_numpy() * k)],
            ).async_exec()
            for k in range(1, 4)
        ]
        sums = []
        for answer in await asyncio.gather(*asked):
            if answer.has_error():
                return pb_utils.InferenceResponse(error=answer.error())
            sums.append(pb_utils.get_output_tensor_by_name(answer, "SUM").as_numpy()[0])
        n = pb_utils.Tensor("IN", np.array([3], np.int32))
        stream = pb_utils.InferenceRequest(model_name="counter", requested_output_names=["OUT"], inputs=[n]).exec(decoupled=True)
        seen = [pb_utils.get_output_tensor_by_name(r, "OUT").as_numpy()[0] for r in stream if r.output_tensors()]
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("sums", np.array(sums)),
                pb_utils.Tensor("counted", np.array(seen, dtype=np.int32)),
            ]
        )
