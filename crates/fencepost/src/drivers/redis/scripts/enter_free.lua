-- The short way: nobody holds the lock or stands in line, and the claim was not given up. All else goes on below.
-- KEYS, ARGV: as in enter.lua.
if redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[4], KEYS[8]) == 0 then
  local token, is_blank = mint(tonumber(ARGV[4]))
  redis.call('SET', KEYS[1], 'fp1 ' .. ARGV[2] .. ' ' .. token .. ARGV[5], 'PX', ARGV[3])
  return { 'granted', token, is_blank and 1 or 0, 0 }
end
