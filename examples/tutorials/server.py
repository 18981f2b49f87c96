"""A Redis for trying things out: prints its address, and runs until Ctrl-C."""

import signal

from hashring.testing import RedisServer

ENDS = {signal.SIGINT, signal.SIGTERM}

signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)  # a signal that comes early waits for sigwait
with RedisServer(port=0) as server:
    print(f"redis://127.0.0.1:{server.port}", flush=True)
    signal.sigwait(ENDS)
