"""Workers on other machines: frames over ZeroMQ, between the process that serves and ``pytriton worker``."""
