"""Live members: each keeps its lease by threads of its own.

A member is made of the way it is run (``base_member``, and ``sync_member`` or ``async_member``) and
of a protocol: ``base_partition_group`` with the two facades of it, ``lease_challenge``, or
``faithful_challenge``, which is there to be studied.
"""
