"""The Triton server as a child process: its place, flags, process and model repository."""
