"""Partition groups in virtual time."""
