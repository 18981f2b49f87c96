"""Partition groups: fixed partitions, dynamic members, one owner each: :mod:`.next_state`."""
