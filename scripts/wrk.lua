-- A script for wrk: sends the requests in the files 1, 2, ... of the folder $WRK_REQUESTS in rotation, and writes the
-- figures to its file "result". Eight zeros in a request become a new number each time.
local folder, id = os.getenv("WRK_REQUESTS"), "00000000"
local requests, n = {}, 0
repeat
  local file = io.open(folder .. "/" .. #requests + 1, "rb")
  if file then
    local text = file:read("*a")
    local at = text:find(id, 1, true)
    table.insert(requests, at and {text:sub(1, at - 1), text:sub(at + #id)} or {text})
    file:close()
  end
until not file

if #requests == 1 and #requests[1] == 1 then
  wrk.format = function() return requests[1][1] end -- which wrk calls once, however large it is
else
  function request()
    n = n + 1
    local each = requests[n % #requests + 1]
    return each[2] and each[1] .. string.format("%08d", n) .. each[2] or each[1]
  end
end

function done(summary, latency)
  local errors, file = summary.errors, assert(io.open(folder .. "/result", "w"))
  file:write(string.format("%d %d %d %d %d", summary.requests - errors.status, summary.duration,
    errors.status + errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
  file:close()
end
