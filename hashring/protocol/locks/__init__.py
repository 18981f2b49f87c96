"""The locks and the limit of one node, without I/O, clock or threads: start with :mod:`.book`."""
