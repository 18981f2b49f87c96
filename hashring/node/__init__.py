"""The live node: what runs its machine in a thread, a greenlet or asyncio, and what users call."""
