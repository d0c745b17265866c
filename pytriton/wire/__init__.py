"""What the proxies, the worker and the server in this process speak: frames, tensors, arenas and channels.

Imports the standard library and numpy alone: the launcher copies these files into the generated model repository.
"""
