"""Protocols without I/O: decided step by step, run by any loop."""
