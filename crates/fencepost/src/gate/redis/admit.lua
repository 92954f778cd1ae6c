-- The check of a gate, to stand before the lines of a script.
--
-- fencepost_admit(key, token, lineage) compares the pass with the mark under `key`, and records it. It answers nil if the pass
-- is accepted; otherwise the error reply that the script must return at once: `STALE <highest>`, `LINEAGE <recorded>` or
-- `INVALID <why>`. An unknown lineage is ''.
local function fencepost_admit(key, token, lineage)
  if not string.match(token, '^[1-9]%d*$') or #token > 20 or (#token == 20 and token > '18446744073709551615') then
    return { err = 'INVALID the token is not a whole number from 1 to 18446744073709551615' }
  end
  local mark = redis.call('HMGET', key, 'highest', 'lineage')
  local highest, recorded = mark[1] or '', mark[2] or ''
  if lineage ~= '' and recorded ~= '' and lineage ~= recorded then
    return { err = 'LINEAGE ' .. recorded }
  end
  -- As text: a number of Lua's keeps 15 digits, and a token may have 20.
  if #token < #highest or (#token == #highest and token < highest) then
    return { err = 'STALE ' .. highest }
  end
  if recorded == '' then
    recorded = lineage
  end
  if token ~= highest or recorded ~= (mark[2] or '') then
    -- First, so that a user who may not do it gets no mark that expires.
    redis.call('PERSIST', key)
    redis.call('HSET', key, 'highest', token, 'lineage', recorded)
  end
end
