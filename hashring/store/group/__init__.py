"""Partition groups. Commands, scripts and twins."""
