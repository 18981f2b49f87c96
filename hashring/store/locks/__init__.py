"""Locks on keys, with fencing tokens. Commands and scripts."""
