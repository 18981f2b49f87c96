"""Who owned a point when: a ring's history, looked up."""
