"""A server's status, and the states of servers and models by their names, such as ``MODEL_READY``."""

from pytriton.compat.tensorrtserver.messages import *  # noqa: F403  (all messages of v1)
from pytriton.compat.tensorrtserver.messages import ModelReadyState, ServerReadyState

globals().update(ServerReadyState.items())
globals().update(ModelReadyState.items())
