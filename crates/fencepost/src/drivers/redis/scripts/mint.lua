-- Tokens. KEYS: as in common.lua.
local KEEP = 172800000  -- how long after its own time a token is remembered, in ms

local function mint(floor)
  local last = tonumber(redis.call('GET', KEYS[2]) or 0) or 0
  local token = math.max(last + 1, floor + 1, clock[1] * 1000000 + clock[2])
  if token >= 9007199254740992 then
    error('the last token of this lock is no number that redis can exceed; delete the key that holds it')
  end
  local text = string.format('%.0f', token)
  -- A number of this size reaches the server whole.
  redis.call('SET', KEYS[2], text, 'PXAT', math.floor(token / 1000) + KEEP)
  return text, last == 0
end
