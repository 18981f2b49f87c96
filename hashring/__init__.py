"""Split a moving set of keys over a fleet of Python processes with nothing but Redis."""
