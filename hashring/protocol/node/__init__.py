"""A node of a ring, without I/O or clock: start with :mod:`.node_machine`."""
