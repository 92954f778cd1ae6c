-- Changes nothing. KEYS: lock, queue, aside, who. ARGV: 'look'
local held = redis.call('GET', KEYS[1])
local members = {}
for _, key in ipairs({ KEYS[2], KEYS[3] }) do
  local found = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  for i = 1, #found, 2 do
    table.insert(members, { found[i], tonumber(found[i + 1]) })
  end
end
table.sort(members, function(a, b) return a[2] < b[2] end)
local records = {}
for i, member in ipairs(members) do
  records[i] = redis.call('HGET', KEYS[4], member[1]) or ''
end
return { held, held and redis.call('PTTL', KEYS[1]) or 0, records }
