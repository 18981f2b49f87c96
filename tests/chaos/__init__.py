"""Faults on real processes and a real Redis, and a checker of what they did to ownership.

``scripts/chaos --help`` says how to run it; docs/explanation/chaos.rst what is measured, and how
it is judged.
"""
