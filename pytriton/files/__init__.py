"""Checks of files that others have made, before a library reads them.

========== ==================================================================================
``onnx``   files with data that an ONNX file names, and its inputs, without the package onnx
``probe``  files that end the process which reads them: another process reads them first
``zips``   zip files that would fill the disk, or write outside of their folder
========== ==================================================================================
"""
