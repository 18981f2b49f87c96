#!/usr/bin/env python
"""A server of feeds, for the example beside it: one message a second on each connection.

    python examples/feeds/server.py [PORT]

It prints its address, then a line for each connection that opens or closes: ``+ feed-3`` or ``-
feed-3``.
"""

import asyncio
import sys
from contextlib import suppress

import websockets
from websockets.asyncio.server import ServerConnection, serve


async def feed(connection: ServerConnection) -> None:
    name = connection.request.path.lstrip("/")
    print("+", name, flush=True)
    try:
        number = 0
        while True:
            await connection.send(f"{name}: {number}")
            number += 1
            await asyncio.sleep(1)
    except websockets.ConnectionClosed:
        pass
    finally:
        print("-", name, flush=True)


async def main(port: int) -> None:
    # A client that was killed or paused is noticed within a second.
    async with serve(feed, "127.0.0.1", port, ping_interval=0.3, ping_timeout=0.5) as server:
        host, port = server.sockets[0].getsockname()
        print(f"ws://{host}:{port}", flush=True)
        await asyncio.Future()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
