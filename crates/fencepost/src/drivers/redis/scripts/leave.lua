-- KEYS: the common ones. ARGV: 'leave', claim, locker.
-- If a tombstone is needed, its key follows the others, and how long it stands, in ms, the claim's locker.
local LEFT = KEYS[8]
local _, claim, locker, tomb = unpack(ARGV)
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
if tomb then
  -- An enter that is still on its way must not put a ghost in line.
  redis.call('SET', LEFT, '', 'PX', tomb)
end
return { found, more and 1 or 0, deaf and 1 or 0 }
