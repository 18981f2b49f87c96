"""``hashring doctor``: what is wrong with the server and the ring, and what to do."""
