"""Worker processes for models: what users pass to ``bind`` and around ``serve``. The code is in ``pytriton.pool``."""

from pytriton.pool.autoscaler import Autoscaler
from pytriton.pool.pool import WorkerStatus
from pytriton.pool.processes import Processes
from pytriton.pool.remote_workers import RayWorkers, RemoteWorkers

__all__ = ["Autoscaler", "Processes", "RayWorkers", "RemoteWorkers", "WorkerStatus"]
