"""Status of a request, which servers now tell by the status of HTTP and gRPC: for programs that mention its names."""

from pytriton.compat.tensorrtserver.messages import RequestStatus, RequestStatusCode

__all__ = ["RequestStatus", "RequestStatusCode"]

globals().update(RequestStatusCode.items())
