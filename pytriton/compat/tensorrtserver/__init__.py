"""``tensorrtserver``, the client of TensorRT Inference Server 1.8 to 1.15, for today's servers.

A program written for it changes its imports, and nothing else::

    from pytriton.compat.tensorrtserver.api import *
"""
