-- KEYS: the common ones. ARGV: 'force'
local held = redis.call('GET', LOCK)
local left = held and redis.call('PTTL', LOCK) or 0
local floor = held and tonumber(string.match(held, '^fp1 %x+ (%d+) ')) or 0
if held then
  -- First of all: what follows may be refused for want of memory.
  redis.call('DEL', LOCK)
end
local token = mint(floor)
local more = false
if held then
  local claim, locker = string.match(held, '^fp1 (%x+) %d+ (%x+) ')
  if claim then
    tell(locker .. claim, 'out ')
  end
  more = wake()
end
return { held, left, token, more and 1 or 0 }
