/**
 * The limits in Redis: the exact sliding window, and amounts of a day, as one script call for all requests of a turn of the event loop.
 *
 * A key is a list of acceptances, oldest first; each entry is a time in microseconds of Redis's own clock (7 bytes) and the
 * number of requests accepted up to and with it (3 bytes, modulo 2^24). What one call accepts is one entry, and the count
 * of a window is the difference between its last entry and the one before its first: that one stays as the list's head. So
 * a call costs the same at every limit, and an app takes 12 KB at most at a limit of 1,000.
 *
 * An amount of a day is a number. It is counted whole or not at all, on top of what the caller knows of the day otherwise.
 *
 * KEYS: the windows and days. ARGV: the time in microseconds, empty for Redis's own; then one text of numbers, which is cheaper to
 * send than separate arguments: per key, the number of requests and the limit, and 0; for a day the amount, the limit, and one
 * more than what the caller knows of. The reply is such a text too: per key, the accepted requests, the requests in the window, and
 * the microseconds until one can be accepted where the window is full, else until the oldest leaves it. A lowered limit may be
 * exceeded: then more than the oldest has to leave.
 *
 * A clock that is set back must neither lift a limit nor block a key forever. If set back by up to one window, time stops for the
 * key; beyond that, all counted requests are dated now. An entry is never in the future.
 */
export const SLIDING_LOG_SCRIPT = `
local WINDOW = 60000000
local COUNTS = 16777216
local DAYS = 172800000
local function entry(at, count) return struct.pack('>I7I3', at, count % COUNTS) end
local function read(text)
  local at, count = struct.unpack('>I7I3', text)
  return at, count
end
local function add(key, amount, limit, known)
  local count = math.max(tonumber(redis.call('GET', key) or 0), known)
  local accepted = count + amount <= limit and amount or 0
  if accepted > 0 then redis.call('SET', key, string.format('%d', count + amount), 'PX', DAYS) end
  return accepted, count + accepted, 0
end
local function decide(key, time, wanted, limit)
  local now, before, count, oldest = time, 0, 0, nil
  local last = redis.call('LINDEX', key, -1)
  if last then
    local newest, total = read(last)
    local head = redis.call('LRANGE', key, 0, 1)
    before = select(2, read(head[1]))
    if newest > now + WINDOW then
      count = (total - before) % COUNTS
      redis.call('DEL', key)
      redis.call('RPUSH', key, entry(0, 0), entry(now, count))
      redis.call('PEXPIRE', key, WINDOW / 1000 + 1)
      before, oldest = 0, now
    else
      if newest > now then now = newest end
      while head[2] do
        local at, number = read(head[2])
        if at > now - WINDOW then oldest = at break end
        redis.call('LPOP', key)
        before = number
        head[2] = redis.call('LINDEX', key, 1)
      end
      count = (total - before) % COUNTS
    end
  end
  local accepted = math.max(0, math.min(wanted, limit - count))
  if accepted > 0 then
    if not last then redis.call('RPUSH', key, entry(0, 0)) end
    count = count + accepted
    redis.call('RPUSH', key, entry(now, before + count))
    redis.call('PEXPIRE', key, WINDOW / 1000 + 1)
    oldest = oldest or now
  elseif count > limit then
    for _, text in ipairs(redis.call('LRANGE', key, 1, -1)) do
      local at, number = read(text)
      oldest = at
      if (number - before) % COUNTS > count - limit then break end
    end
  end
  return accepted, count, oldest and oldest + WINDOW - now or 0
end
local time = tonumber(ARGV[1])
if not time then
  local clock = redis.call('TIME')
  time = clock[1] * 1000000 + clock[2]
end
local answer = {}
local number = string.gmatch(ARGV[2], '%d+')
for index, key in ipairs(KEYS) do
  local wanted, limit, known = tonumber(number()), tonumber(number()), tonumber(number())
  if known > 0 then
    answer[index] = string.format('%d %d %d', add(key, wanted, limit, known - 1))
  else
    answer[index] = string.format('%d %d %d', decide(key, time, wanted, limit))
  end
end
return table.concat(answer, ' ')`;
