"""Partition groups: fixed partitions, dynamic members, one owner each. Pure; see ``kernel``."""
