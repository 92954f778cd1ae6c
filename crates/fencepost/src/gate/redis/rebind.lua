-- KEYS: the mark
-- ARGV: highest and lineage, each empty if there is none
local before = redis.call('HMGET', KEYS[1], 'highest', 'lineage')
redis.call('PERSIST', KEYS[1])
redis.call('HSET', KEYS[1], 'highest', ARGV[1], 'lineage', ARGV[2])
return before
