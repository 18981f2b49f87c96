"""Locks on keys, with fencing tokens. Commands, scripts and twins."""
