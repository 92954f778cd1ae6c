-- Common to the scripts of a lock that somebody may wait for. KEYS: lock, token, queue, aside, beat, who, offer, and what
-- the script adds.
--
-- lock   'fp1 <claim> <token> <locker> <flag> <owner>', with the lease as its time to live
-- token  the last token that was minted
-- queue  those who wait and can be told, by the order of their arrival; a member is <locker><claim>
-- aside  those who wait and could not be told; they keep their number, and their next enter puts them back
-- beat   until when each waiting locker is believed to be alive, in the server's milliseconds
-- who    the owner records of those who wait, and for each locker that cannot be told anything the word 'polls'
-- offer  to whom the free lock was offered, and when
local LOCK, _, QUEUE, ASIDE, BEAT, WHO, OFFER = unpack(KEYS, 1, 7)
local STEPS = 16            -- how many of those who wait one script looks at
local PATIENCE = 500        -- how long an offer stands, in ms
local LONGEST_BEAT = 30000  -- the longest heartbeat that a locker promises, in ms

local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local deaf = false          -- we may not publish

local function is_of(value, claim)
  return value and string.sub(value, 1, 4) == 'fp1 ' and string.sub(value, 5, 36) == claim
end

local function tell(member, text)
  local sent = redis.pcall('PUBLISH', 'fencepost:wake:' .. string.sub(member, 1, 16), text .. string.sub(member, 17))
  if type(sent) == 'table' then
    deaf = true
    return nil
  end
  return sent
end

local function head(rank)
  return redis.call('ZRANGE', QUEUE, rank or 0, rank or 0)[1]
end

local function forget(member)
  local gone = redis.call('ZREM', QUEUE, member) + redis.call('ZREM', ASIDE, member)
  redis.call('HDEL', WHO, member)
  if redis.call('EXISTS', QUEUE, ASIDE) == 0 then
    redis.call('DEL', BEAT, WHO, OFFER)
  end
  return gone
end

local function is_offered(member)
  local offer = redis.call('GET', OFFER)
  return offer and string.sub(offer, 1, 48) == member and tonumber(string.sub(offer, 50))
end

local function set_aside(member)
  if is_offered(member) then
    redis.call('DEL', OFFER)
  end
  local number = redis.call('ZSCORE', QUEUE, member)
  redis.call('ZREM', QUEUE, member)
  redis.call('ZADD', ASIDE, number, member)
  -- Perhaps nobody comes any more to prolong or remove it.
  redis.call('PEXPIRE', ASIDE, 2 * LONGEST_BEAT)
end

-- Whether the locker of this member has not been heard of for too long.
local function is_lapsed(member)
  local locker = string.sub(member, 1, 16)
  local due = tonumber(redis.call('ZSCORE', BEAT, locker) or 0)
  if due > now + LONGEST_BEAT + 1000 then
    -- The clock was set back.
    redis.call('ZADD', BEAT, now + LONGEST_BEAT, locker)
    return false
  end
  return due < now
end

-- Whether the locker of this member asks from time to time, since it cannot be told.
local function polls(member)
  return redis.call('HEXISTS', WHO, string.sub(member, 1, 16)) == 1
end

-- Whether the free lock was offered to this member, and it has not come for it in time.
local function is_late(member)
  local since = is_offered(member)
  return since and (now - since > PATIENCE or since > now + 1000)
end

-- Offers the free lock to the first who can be told, and lets the second look after it. True if somebody is left who
-- was not asked.
local function wake()
  for _ = 1, STEPS do
    local first = head()
    if not first then
      return false
    end
    if is_lapsed(first) then
      -- Perhaps the server stood still, and not the locker.
      tell(first, 'turn ')
      forget(first)
    elseif is_late(first) then
      set_aside(first)
    else
      if tell(first, 'turn ') == 0 and not polls(first) then
        set_aside(first)
      else
        if not is_offered(first) then
          redis.call('SET', OFFER, first .. ' ' .. now, 'PX', 60000)
        end
        for rank = 1, STEPS do
          local second = head(rank)
          if not second or tell(second, 'next ') ~= 0 then
            break
          end
        end
        return false
      end
    end
  end
  return head() ~= nil
end

-- Tells the first of those who wait that it is, and how long the holder's lease goes on; without `left`, lets it ask.
local function tell_first(left)
  local text = left and 'first ' .. string.format('%.0f', left) .. ' ' or 'turn '
  for _ = 1, STEPS do
    local first = head()
    if not first then
      return
    end
    if is_lapsed(first) then
      forget(first)
    elseif tell(first, text) == 0 and not polls(first) then
      set_aside(first)
    else
      return
    end
  end
end
