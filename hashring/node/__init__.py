"""The live node: its protocol without I/O, and what runs it in a thread, a greenlet or asyncio."""
