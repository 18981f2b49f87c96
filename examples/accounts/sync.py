#!/usr/bin/env python
"""Keep accounts in PostgreSQL in step with their source: one process an account, never two.

Each process is a node with locks. It syncs the accounts that it holds, several at once, in
greenlets. Every write carries the fencing token of the account's lock, and the WHERE clause
refuses a token older than the newest one that the row has seen. A process that was paused for too
long wakes up, writes, and is refused.

    examples/run accounts            two nodes, with a Redis and a PostgreSQL of their own
    python examples/accounts/sync.py --redis URL --database URL
"""

from gevent import monkey

monkey.patch_all()

import argparse
import logging
import signal
from contextlib import contextmanager

import gevent
import psycopg
from gevent.event import Event
from gevent.pool import Pool
from gevent.queue import Queue
from redis import Redis

from hashring import LeaseLost, NotHeld, RingNode, StaleToken

CONNECTIONS = 4


class Accounts:
    """The table, over a few connections that greenlets share."""

    def __init__(self, url: str) -> None:
        self.free: Queue[psycopg.Connection] = Queue()
        for _ in range(CONNECTIONS):
            self.free.put(psycopg.connect(url, autocommit=True))

    @contextmanager
    def connection(self):
        database = self.free.get()
        try:
            yield database
        finally:
            self.free.put(database)

    def ids(self) -> list[str]:
        with self.connection() as database:
            return [row[0] for row in database.execute("SELECT id FROM accounts ORDER BY id")]

    # begin save
    def save(self, account: str, token: int, node: str) -> None:
        """Write for the holder of the token, or raise StaleToken."""
        with self.connection() as database:
            # One statement: a process that is paused between two keeps the row locked for its heir.
            done = database.execute(
                "WITH saved AS (UPDATE accounts SET version = version + 1, token = %(token)s"
                " WHERE id = %(account)s AND token <= %(token)s RETURNING id)"
                " INSERT INTO writes (account, token, node)"
                " SELECT id, %(token)s, %(node)s FROM saved",
                {"account": account, "token": token, "node": node},
            )
            if done.rowcount == 0:
                row = database.execute("SELECT token FROM accounts WHERE id = %s", (account,))
                raise StaleToken(account, token, row.fetchone()[0])

    # end save


# begin sync
def sync(node: RingNode, accounts: Accounts, account: str, seconds: float) -> None:
    """Fetch one account from its source, and save it."""
    try:
        with node.hold(account) as lease:
            gevent.sleep(seconds)  # the source answers slowly
            lease.check()  # do not start what would be refused
            accounts.save(account, lease.token, node.name)
    except (NotHeld, LeaseLost, StaleToken) as refusal:
        logging.warning("%s is left to its new holder: %s", account, refusal)


# end sync


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--redis", required=True, metavar="URL")
    parser.add_argument("--database", required=True, metavar="URL")
    parser.add_argument("--name", help="the node's name")
    parser.add_argument("--ttl", type=float, default=3, help="seconds")
    parser.add_argument("--seconds", type=float, default=0.1, help="that a sync takes")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")

    accounts = Accounts(given.database)
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, stop.set)
    node = RingNode(
        Redis.from_url(given.redis),
        "accounts",
        name=given.name,
        lock=True,
        ttl=given.ttl,
        heartbeat_interval=given.ttl / 6,
    )
    node.gevent_start()
    pool = Pool(CONNECTIONS)
    try:
        while not stop.is_set():
            mine = node.select(accounts.ids())
            print(f"{node.name} syncs {len(mine)} accounts", flush=True)
            for account in mine:
                pool.spawn(sync, node, accounts, account, given.seconds)
            pool.join()
            stop.wait(0.2)
    finally:
        pool.join()
        node.gevent_stop()


if __name__ == "__main__":
    main()
