"""Worker pools: the threads or processes that call a model's callables, one worker per model instance.

::

    Model
    └── WorkerPool (pool.py)
        ├── ThreadWorkerPool (threads.py)               of Callables
        │   └── Instance (pytriton.worker)              one per callable, in this process
        └── ProcessWorkerPool (processes.py)            of Processes
            ├── Template (template.py)                  with ``share``: forks the processes of workers
            └── ScaledWorkers (scaling.py)              as many as there are now
                └── LocalWorkerSupervisor               one per worker (local_worker_supervisor.py)
                    ├── HeldConnections                 of its proxies while it has no process (held_connections.py)
                    └── ChildProcess (process.py)       the process; it talks through pipes.py
                        └── worker_main.py              in that process: Instance ══ its proxy

``ProcessSupervisor`` (process_supervisor.py), of which ``LocalWorkerSupervisor`` and ``Template`` are kinds, keeps one
process running: it starts, follows, restarts and stops it.

``Workers`` (pool.py) is what a pool is made of; another kind of it, with its pool, needs no change elsewhere. Those of
:mod:`pytriton.cluster` are such kinds; ``WorkerSupervisor`` and ``Templates`` (worker_supervisor.py) start and fork
their processes, too.

A worker process holds the socket of its instance. Batches do not pass through the process that started it.
"""
