-- KEYS: the common ones, and the claim's tombstone.
-- ARGV: 'leave', claim, locker, how long a tombstone stands in ms, '1' if one is needed
local LEFT = KEYS[8]
local _, claim, locker, tomb, is_unsure = unpack(ARGV)
local me = locker .. claim
local found, more = 0, false

if is_of(held, claim) then
  -- First of all: what follows may be forbidden.
  redis.call('DEL', LOCK)
  found = 1
  more = wake()
elseif redis.call('EXISTS', QUEUE, ASIDE) > 0 then
  local was_first = head() == me
  found = forget(me)
  if not held then
    more = wake()
  elseif was_first then
    tell_first()
  end
end
if is_unsure == '1' then
  -- An enter that is still on its way must not put a ghost in line.
  redis.call('SET', LEFT, '', 'PX', tomb)
end
return { found, more and 1 or 0, deaf and 1 or 0 }
