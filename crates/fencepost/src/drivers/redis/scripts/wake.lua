-- Goes on where a script that freed the lock had to stop. KEYS: the common ones. ARGV: 'wake'
if redis.call('EXISTS', LOCK) == 1 then
  return { 0, 0, 0 }
end
return { 0, wake() and 1 or 0, deaf and 1 or 0 }
