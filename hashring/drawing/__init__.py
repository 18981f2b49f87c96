"""Rings, balance and charts as SVG text: pure functions of values, with one palette."""
