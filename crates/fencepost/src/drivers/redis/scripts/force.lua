-- KEYS: the common ones. ARGV: 'force'
local held = redis.call('GET', LOCK)
local left = held and redis.call('PTTL', LOCK) or 0
local floor = held and tonumber(string.match(held, '^fp1 %x+ (%d+) ')) or 0
local token = mint(floor)
local more = false
if held then
  redis.call('DEL', LOCK)
  local claim, locker = string.match(held, '^fp1 (%x+) %d+ (%x+) ')
  if claim then
    tell(locker .. claim, 'out ')
  end
  more = wake()
end
return { held, left, token, more and 1 or 0 }
