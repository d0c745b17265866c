"""Files that others have made, before a library reads them: what they are, and whether they are safe to read.

=============== ====================================================================================
``formats``     the table of formats of saved models, and which one a file has; ``saved`` loads them
``networks``    folders of Hugging Face: whether they have a network, and weights that run no code
``onnx``        files with data that an ONNX file names, and its inputs, without the package onnx
``unsupported`` files and folders of models that cannot be served as they are, and what to do with them
``pickles``     files that may run any code when they are loaded
``probe``       files that end the process which reads them: another process reads them first
``zips``        zip files that would fill the disk, or write outside of their folder
=============== ====================================================================================
"""
