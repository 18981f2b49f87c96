"""Streams of rows, tagged with their owners while the ring changes."""
