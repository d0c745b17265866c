"""As ``served.py``, but the server is launched again when it has died."""

import served

from pytriton.triton import TritonLifecyclePolicy

if __name__ == "__main__":
    served.main(triton_lifecycle_policy=TritonLifecyclePolicy(restart_server=True))
