"""A member of a partition group, without I/O or clock: start with :mod:`.base_member_machine`."""
