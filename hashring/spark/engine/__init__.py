"""What we ask of Spark itself: a session, arrays, expressions, counts, errors, and an end."""
