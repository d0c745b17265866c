# gives back whatever it gets, the configuration is made here (auto complete)
import json

import numpy as np
import triton_python_backend_utils as pb_utils

DTYPES = "BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 FP32 FP64 STRING".split()


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(auto_complete_model_config):
        config = auto_complete_model_config.as_dict()
        decoupled = config["parameters"].get("decoupled", {}).get("string_value", "False") if "parameters" in config else "False"
        for dtype in DTYPES:
            name = dtype.lower()
            auto_complete_model_config.add_input({"name": name + "_input", "data_type": "TYPE_" + dtype, "dims": [-1], "optional": True})
            auto_complete_model_config.add_output({"name": name + "_output", "data_type": "TYPE_" + dtype, "dims": [-1]})
        auto_complete_model_config.set_max_batch_size(16)
        auto_complete_model_config.set_dynamic_batching()
        if decoupled == "True":
            auto_complete_model_config.set_model_transaction_policy(dict(decoupled=True))
        return auto_complete_model_config

    def initialize(self, args):
        self.model_config = json.loads(args["model_config"])
        self.decoupled = pb_utils.using_decoupled_model_transaction_policy(self.model_config)
        self.dtypes = {
            o["name"]: pb_utils.triton_string_to_numpy(o["data_type"]) for o in self.model_config["output"]
        }
        self.logger = pb_utils.Logger
        self.logger.log_info("identity is up, numpy " + np.__version__)

    def copy(self, input_tensor):
        name = input_tensor.name().replace("_input", "_output")
        if self.dtypes[name] not in (np.object_, np.bool_) and input_tensor.is_cpu():
            if np.issubdtype(self.dtypes[name], np.integer):
                return pb_utils.Tensor.from_dlpack(name, np.array(input_tensor.as_numpy()))
            return pb_utils.Tensor.from_dlpack(name, input_tensor)
        return pb_utils.Tensor(name, input_tensor.as_numpy().astype(self.dtypes[name]))

    def execute(self, requests):
        responses = []
        for request in requests:
            response = pb_utils.InferenceResponse(output_tensors=[self.copy(t) for t in request.inputs()])
            if self.decoupled:
                sender = request.get_response_sender()
                sender.send(response)
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            else:
                responses.append(response)
        return None if self.decoupled else responses

    def finalize(self):
        self.logger.log_info("identity is gone")
