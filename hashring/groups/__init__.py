"""The live partition group: a member in a thread of its own."""
