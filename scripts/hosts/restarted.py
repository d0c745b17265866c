"""As ``served.py``, but the server is launched again when it has died, and the first argument may be ``--workers=N``.

Then N worker processes call each model. They are started again however often they die, and wear out as well.
"""

import logging
import sys

import served

from pytriton.triton import TritonLifecyclePolicy
from pytriton.workers import Processes

WEAR_OUT_REQUESTS = 20_000

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    if sys.argv[1].startswith("--workers="):
        count = int(sys.argv.pop(1).partition("=")[2])
        for name, function in served.FUNCTIONS.items():
            served.FUNCTIONS[name] = Processes(
                lambda function=function: function,
                count=count,
                max_requests=WEAR_OUT_REQUESTS,
                restart_period_s=0.01,  # each death is like the first
            )
    served.main(triton_lifecycle_policy=TritonLifecyclePolicy(restart_server=True))
