"""The clients under their historical import path."""

from pytriton.client.base import BaseModelClient
from pytriton.client.session import DEFAULT_INFERENCE_TIMEOUT_S
from pytriton.client.sync import ModelClient

__all__ = ["DEFAULT_INFERENCE_TIMEOUT_S", "BaseModelClient", "ModelClient"]
