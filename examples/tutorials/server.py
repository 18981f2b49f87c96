"""A Redis for trying things out: prints its address, and runs until Ctrl-C."""

import signal

from hashring.testing import RedisServer

with RedisServer(port=0) as server:
    print(f"redis://127.0.0.1:{server.port}", flush=True)
    signal.pause()
