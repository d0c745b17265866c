"""Typed functions: the inputs and outputs of a model derived from a callable's annotations, or from an example call.

=============== =====================================================================================
``functions``   a callable as its author wrote it: parameters, hints, decorators
``records``     classes with fields, and what docstrings say of fields and parameters
``annotations`` an annotation as a schema, with what makes Python objects of values
``examples``    what examples of requests tell of tensors, and what becomes of them
``derive``      a callable and its examples as the inputs, outputs and signature of a model
``schema``      the signature in a model's configuration: the JSON that clients and other programs read
``validation``  whether values fit a schema; the errors
``values``      Python values as arrays and back, for workers and clients
``arguments``   from the arrays of requests to the arguments of calls
``served``      the callable that serves a typed function
=============== =====================================================================================
"""
