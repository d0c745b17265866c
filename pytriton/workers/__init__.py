"""Who calls a model's callables: threads of this process, or processes of their own.

::

    Model
    ├── ThreadCrew       a list of callables      ─ Instance (pytriton.worker), a thread each
    └── ProcessCrew      Processes(factory)       ─ Supervisor, a thread each
                                                      │ pipe: commands, events, output
                                                    WorkerProcess ─ worker_main.py ─ Instance ══ its proxy

A worker process holds the socket of its model instance and talks to its proxy without a hop through this process.
"""

from pytriton.workers.autoscaler import Autoscaler
from pytriton.workers.processes import Processes

__all__ = ["Autoscaler", "Processes"]
