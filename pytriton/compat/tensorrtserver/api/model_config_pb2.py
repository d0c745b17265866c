"""Models' configurations: ``ModelConfig`` and its constants, such as ``TYPE_FP32``, which are tritonclient's."""

from tritonclient.grpc.model_config_pb2 import *  # noqa: F403  (whatever there is)
