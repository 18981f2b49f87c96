"""The lease challenge: its commands and its scripts."""
