"""The server's half of the data path: frames, arenas, channels and the model that Triton's Python backend runs.

Imports the standard library and numpy alone: the launcher copies these files into the generated model repository.
"""
