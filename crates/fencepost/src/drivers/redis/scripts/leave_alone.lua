-- The short way: the claim holds the lock, and nobody stands in line. All else goes on below.
-- KEYS, ARGV: as in leave.lua.
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then
  -- Another client has put a key of another kind in our place.
  held = '?'
end
if held and string.sub(held, 1, 36) == 'fp1 ' .. ARGV[2] and not ARGV[4] and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return { 1, 0, 0 }
end
