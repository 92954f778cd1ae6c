-- The short way: nobody holds the lock or stands in line, and the claim was not given up. All else goes on below.
-- KEYS, ARGV: as in enter.lua.
if redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[4], KEYS[8]) == 0 then
  local _, claim, locker, ttl, _, floor, flag, owner = unpack(ARGV)
  local token, is_blank = mint(tonumber(floor))
  redis.call('SET', KEYS[1], 'fp1 ' .. claim .. ' ' .. token .. ' ' .. locker .. ' ' .. flag .. ' ' .. owner, 'PX', ttl)
  return { 'granted', token, is_blank and 1 or 0, 0 }
end
