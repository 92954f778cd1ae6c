-- KEYS: the common ones, and the claim's tombstone.
-- ARGV: 'enter', claim, ttl in ms, floor, ' <locker> <flag> <owner record>' (the end of the lock's value), and 'try', or how it
-- waits: 'hears' or 'polls', and its heartbeat in ms.
local LEFT = KEYS[8]
local _, claim, ttl, floor, record, wait = unpack(ARGV)
local locker, owner = string.sub(record, 2, 17), string.sub(record, 21)
local me = locker .. claim
local held = redis.call('GET', LOCK)

if is_of(held, claim) then
  redis.call('PEXPIRE', LOCK, ttl)
  return { 'granted', string.match(held, '^fp1 %x+ (%d+) ') }
end
if redis.call('EXISTS', LEFT) == 1 then
  return { 'gone' }
end

-- A claim that was set aside has come.
local number = redis.call('ZSCORE', ASIDE, me)
if number then
  redis.call('ZREM', ASIDE, me)
  redis.call('ZADD', QUEUE, number, me)
end

if held and is_offered(me) then
  -- It came, and somebody else was quicker.
  redis.call('DEL', OFFER)
end

-- A few who are gone make room, also while the lock is held for long.
local first = head()
local was_first = first
for _ = 1, 4 do
  if not first or first == me or not is_lapsed(first) then
    break
  end
  forget(first)
  first = head()
end

local function grant()
  local token, is_blank = mint(tonumber(floor))
  redis.call('SET', LOCK, 'fp1 ' .. claim .. ' ' .. token .. record, 'PX', ttl)
  if first == me then
    forget(me)
    redis.call('DEL', OFFER)
    tell_first(tonumber(ttl))
  end
  return { 'granted', token, is_blank and 1 or 0, deaf and 1 or 0 }
end

local more = false
if not held then
  for _ = 1, STEPS do
    if not first or first == me or not (is_lapsed(first) or is_late(first)) then
      break
    end
    if is_lapsed(first) then
      forget(first)
    else
      set_aside(first)
    end
    first = head()
  end
  if not first or first == me then
    return grant()
  end
  more = wake()
  first = head()
  if not first or first == me then
    -- Nobody in front could be told.
    return grant()
  end
end

if held and first and first ~= was_first and first ~= me then
  tell_first()
end
local left = held and redis.call('PTTL', LOCK) or 0
if wait == 'try' then
  return { 'busy', left, held, deaf and 1 or 0 }
end

-- Whether this locker's earlier claims may have been forgotten meanwhile.
local is_new = 0
if not redis.call('ZSCORE', QUEUE, me) then
  is_new = 1
  number = 1
  for _, key in ipairs({ QUEUE, ASIDE }) do
    local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
    number = math.max(number, tonumber(last or 0) + 1)
  end
  redis.call('ZADD', QUEUE, number, me)
  redis.call('HSET', WHO, me, owner)
end
local ear, beat = string.match(wait, '^(%a+) (%d+)$')
if ear == 'polls' then
  redis.call('HSET', WHO, locker, ear)
else
  redis.call('HDEL', WHO, locker)
end
local is_late_beat = is_lapsed(me) and 1 or 0
-- A line that is never empty would keep for ever who was set aside and never came, and when each locker was last heard.
for _, member in ipairs(redis.call('ZRANGE', ASIDE, 0, 3)) do
  if is_lapsed(member) then
    forget(member)
  end
end
redis.call('ZREMRANGEBYSCORE', BEAT, '-inf', now - 1)
redis.call('ZADD', BEAT, now + beat, locker)
for _, key in ipairs({ QUEUE, ASIDE, BEAT, WHO }) do
  redis.call('PEXPIRE', key, 2 * LONGEST_BEAT)
end
first = head()
if more then
  -- Nobody of those in front could be told: go on with the next ones at once.
  left = 1
end
return { 'queued', left, held, deaf and 1 or 0, first, is_new, is_late_beat }
