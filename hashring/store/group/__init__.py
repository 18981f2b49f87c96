"""Partition groups. Commands and scripts."""
