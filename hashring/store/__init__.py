"""The ring in Redis: key names, scripts, commands and replies, and what runs them."""
