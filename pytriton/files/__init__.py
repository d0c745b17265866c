"""Checks of files that others have made, before a library reads them.

============ =======================================================================================
``networks`` folders of Hugging Face: whether they have a network, and weights that run no code
``onnx``     files with data that an ONNX file names, and its inputs, without the package onnx
``others``   files and folders of models that cannot be served as they are, and what to do with them
``pickles``  files that may run any code when they are loaded
``probe``    files that end the process which reads them: another process reads them first
``zips``     zip files that would fill the disk, or write outside of their folder
============ =======================================================================================
"""
