-- KEYS: the mark
-- ARGV: token, lineage, then for each command the number of its words and the words
local refusal = fencepost_admit(KEYS[1], ARGV[1], ARGV[2])
if refusal then
  return refusal
end
local replies = {}
local at = 3
while ARGV[at] do
  local count = tonumber(ARGV[at])
  local reply = redis.pcall(unpack(ARGV, at + 1, at + count))
  replies[#replies + 1] = reply
  if type(reply) == 'table' and reply.err then
    break
  end
  at = at + 1 + count
end
return replies
