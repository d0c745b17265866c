"""The proxy that Triton's Python backend runs: one process of the server per model instance.

Imports the standard library, numpy and :mod:`pytriton.wire` alone: the launcher copies these files into the generated
model repository.
"""
