"""Typed functions: the inputs and outputs of a model derived from a callable's annotations, or from an example call.

=============== =======================================================================================
``functions``   a callable as its author wrote it: parameters, hints, docstring, decorators
``annotations`` an annotation as a schema, with what makes Python objects of values and back
``derive``      a callable and its examples as the inputs, outputs and :class:`schema.Signature` of a model
``schema``      the signature in a model's configuration: the JSON that clients and other programs read
``values``      Python values as arrays and back, and their validation; NumPy and the standard library alone
``served``      the callable of a typed function that answers lists of requests
=============== =======================================================================================
"""
