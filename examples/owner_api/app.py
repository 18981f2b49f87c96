#!/usr/bin/env python
"""A FastAPI application whose processes share keys: each one is a node, and knows every owner.

The node lives as long as the application. ``/owner`` answers in every process without asking
Redis, so a proxy can ask any of them where a key belongs.

    examples/run owner_api           two processes, with a Redis of their own
    HASHRING_REDIS_URL=redis://localhost uvicorn app:app --app-dir examples/owner_api
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException
from redis.asyncio import Redis

from hashring import AsyncRingNode, EmptyRingError, KeyValueError


# begin app
@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Join the ring before the first request, and leave it after the last one."""
    redis = Redis.from_url(os.environ["HASHRING_REDIS_URL"])
    name = os.environ.get("NODE_NAME")
    # Each request asks for an owner, so the node keeps a copy of the ring.
    settings = {"ttl": 3, "heartbeat_interval": 0.5, "follow": True}
    async with AsyncRingNode(redis, "tenants", name=name, **settings) as node:
        app.state.node = node
        yield
    await redis.aclose()


app = FastAPI(lifespan=lifespan)


@app.get("/owner")
async def owner(key: str) -> dict[str, Any]:
    """Which process owns the key, and whether it is this one."""
    node: AsyncRingNode = app.state.node
    try:
        return {"key": key, "owner": node.owner(key), "here": node.contains(key)}
    except EmptyRingError as error:
        raise HTTPException(503, str(error)) from error
    except KeyValueError as error:
        raise HTTPException(400, str(error)) from error


@app.get("/status")
async def status() -> dict[str, Any]:
    """What this process knows of itself."""
    return app.state.node.status.as_dict()


@app.get("/healthz")
async def healthz() -> dict[str, bool]:
    """Alive. An outage of Redis is no reason to restart this process: the node recovers."""
    return {"alive": True}


# end app
