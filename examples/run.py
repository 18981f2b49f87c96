#!/usr/bin/env python
"""Start an example with the servers that it needs: examples/run NAME [--nodes N].

A Redis comes with the package (the extra ``embedded``). PostgreSQL is the machine's own, or the
one that ``scripts/postgresql`` fetched. Everything is gone after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from hashring.testing import RedisServer

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


def accounts(stack: ExitStack, redis: str, name: str) -> list[str]:
    import psycopg  # noqa: PLC0415 - the other examples need none of it
    from postgresql import PostgreSQL  # noqa: PLC0415

    if not hasattr(accounts, "url"):
        accounts.url = stack.enter_context(PostgreSQL()).url
        with psycopg.connect(accounts.url) as database:
            database.execute((HERE / "accounts" / "schema.sql").read_text())
            for number in range(20):
                database.execute("INSERT INTO accounts (id) VALUES (%s)", (f"account-{number}",))
    script = str(HERE / "accounts" / "sync.py")
    return [script, "--redis", redis, "--database", accounts.url, "--name", name]


def feeds(stack: ExitStack, redis: str, name: str) -> list[str]:
    if not hasattr(feeds, "url"):
        port = free_port()
        server = subprocess.Popen([sys.executable, str(HERE / "feeds" / "server.py"), port])
        stack.callback(end, server)
        feeds.url = f"ws://127.0.0.1:{port}"
    script = str(HERE / "feeds" / "feeds.py")
    return [script, "--redis", redis, "--source", feeds.url, "--name", name]


def owner_api(stack: ExitStack, redis: str, name: str) -> list[str]:
    port = free_port()
    os.environ["HASHRING_REDIS_URL"] = redis
    os.environ["NODE_NAME"] = name
    print(f"{name} answers on http://127.0.0.1:{port}/owner?key=hello", flush=True)
    return ["-m", "uvicorn", "app:app", "--app-dir", str(HERE / "owner_api"), "--port", port]


def beat(stack: ExitStack, redis: str, name: str) -> list[str]:
    return [str(HERE / "beat" / "beat.py"), "--redis", redis, "--name", name]


def stream(stack: ExitStack, redis: str, name: str) -> list[str]:
    command = [str(HERE / "stream" / "processor.py"), "--redis", redis]
    if name == "node-1":
        subprocess.run([sys.executable, *command, "--fill", "100000"], check=True)
    return [*command, "--name", name]


def nodes(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text}: give a whole number, at least 1")
    return int(text)


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def end(process: subprocess.Popen) -> None:
    process.terminate()
    process.send_signal(signal.SIGCONT)  # a paused process cannot end
    process.wait()


EXAMPLES = {each.__name__: each for each in (accounts, feeds, stream, owner_api, beat)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", choices=EXAMPLES)
    parser.add_argument("--nodes", type=nodes, default=2, help="how many; 2 unless given")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), ExitStack() as stack:
        redis = stack.enter_context(RedisServer()).url
        print(f"Redis is at {redis}", flush=True)
        running = []
        for number in range(given.nodes):
            command = EXAMPLES[given.name](stack, redis, f"node-{number + 1}")
            process = subprocess.Popen([sys.executable, *command])
            stack.callback(end, process)
            running.append(process)
        while any(process.poll() is None for process in running):
            time.sleep(1)  # and not for ever: a signal just before a wait does not end the wait
        print("No node is left.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
