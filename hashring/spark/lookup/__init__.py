"""From keys to owners: the key as it is hashed, its point, and the range that the point is in."""
