"""Clients of models on a Triton server."""

from pytriton.client.sync import ModelClient

__all__ = ["ModelClient"]
