"""Pure decisions: no I/O, no clock, no randomness of its own. Time and chance come as arguments."""
