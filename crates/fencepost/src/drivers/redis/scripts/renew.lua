-- KEYS: lock. ARGV: 'renew', claim, ttl in ms
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, 4) == 'fp1 ' and string.sub(held, 5, 36) == ARGV[2] then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  -- Our own change has ended the server's tracking of this key; reading it begins it anew.
  redis.call('EXISTS', KEYS[1])
  return 1
end
return 0
