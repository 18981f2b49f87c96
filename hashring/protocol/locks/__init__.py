"""The locks and the limit of one node, without I/O or clock: start with :mod:`.lock_book`."""
