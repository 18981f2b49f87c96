-- The group's terms, empty when no member ever joined. See agreed() in commands.py.

return redis.call('HGET', KEYS[1], 'terms') or ''
