"""The ring's protocol, with locks or without, in virtual time."""
