-- KEYS: lock. ARGV: 'proclaim', claim, owner
local held = redis.call('GET', KEYS[1])
local head = held and string.match(held, '^fp1 %S+ %S+ %S+ %S+ ')
if head and string.sub(head, 5, 36) == ARGV[2] then
  redis.call('SET', KEYS[1], head .. ARGV[3], 'KEEPTTL')
  -- Our own change has ended the server's tracking of this key; reading it begins it anew.
  redis.call('EXISTS', KEYS[1])
  return 1
end
return 0
