"""The questions about all keys and all logs: loads, moves, plans, audits, simulations."""
