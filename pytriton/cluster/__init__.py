"""Frames over ZeroMQ: to ``pytriton worker`` on other machines, and from the proxies of a server on another one."""
