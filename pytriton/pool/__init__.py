"""Worker pools: the threads or processes that call a model's callables, one worker per model instance.

::

    Model
    └── WorkerPool (pool.py)
        ├── ThreadWorkerPool (threads.py)               for a list of callables
        │   └── Instance (pytriton.worker)              one per callable, in this process
        └── ProcessWorkerPool (process_pool.py)         for Processes(factory) (processes.py)
            └── Supervisor (supervisor.py)              one per worker: starts, restarts, replaces and stops it
                └── WorkerProcess (worker_process.py)   the process; commands and reports: messages.py
                    └── worker_main.py                  in that process: Instance ══ its proxy

A worker process holds the socket of its instance. Batches do not pass through the process that started it.
"""
