"""Folders from which container images are built: what ``pytriton build`` writes.

============= ========================================================================
``sources``   what goes into an image: files of saved models, or a program
``lock``      the exact versions of the distributions that those need
``wheel``     the installed package as a wheel
``texts``     the Dockerfile, the file for Docker Compose, the manifests of Kubernetes
``folder``    the folder: the same bytes each time, and nothing of others overwritten
============= ========================================================================

No file of a model is loaded, and no program is run.
"""
