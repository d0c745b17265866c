"""Worker processes for models, as users pass them to ``bind``; their code is in ``pytriton.pool`` and beside it."""

from pytriton.cluster.workers import RayWorkers, RemoteWorkers
from pytriton.pool.autoscaler import Autoscaler
from pytriton.pool.pool import WorkerStatus
from pytriton.pool.processes import Processes
from pytriton.pool.template import ForkedWorker

__all__ = ["Autoscaler", "ForkedWorker", "Processes", "RayWorkers", "RemoteWorkers", "WorkerStatus"]
