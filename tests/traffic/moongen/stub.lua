-- SPDX-License-Identifier: Apache-2.0 OR MIT
--- The part of MoonGen's API that `syn-sessions.lua` uses, without DPDK: `luajit stub.lua SCRIPT [ARGUMENTS]`.
---
--- Tasks are coroutines that take turns, and time passes by a microsecond whenever the script asks for it, so that a run
--- is the same each time. Variables make devices and users behave as tests need it:
---   STUB_FRAMES=FILE        each frame sent is appended: a byte for the device, one for the queue, 60 of the frame
---   STUB_DEVICES, STUB_CORES, STUB_LINKS   how many there are (default 2, 8, all)
---   STUB_ACCEPT=N           devices take at most N frames at once
---   STUB_FAIL=QUEUE         the sender of this queue of device 0 fails after 100 frames
---   STUB_INTERRUPT=N        the user interrupts after N frames

local ffi = require "ffi"
local bit = require "bit"

local function setting(name, default)
	return tonumber(os.getenv("STUB_" .. name)) or default
end

local FRAME = 60
local ROUNDS = 1000000 -- after which the script hangs

ffi.cdef [[
	struct __attribute__((packed)) tcp_frame {
		uint8_t eth_dst[6], eth_src[6];
		uint16_t eth_type;
		uint8_t version, tos;
		uint16_t length, id, fragment;
		uint8_t ttl, protocol;
		uint16_t ip_checksum;
		uint32_t ip_src, ip_dst;
		uint16_t src_port, dst_port;
		uint32_t seq, ack;
		uint8_t offset, flags;
		uint16_t window, tcp_checksum, urgent;
	};
]]

local function hton16(number)
	return bit.rshift(bit.bswap(number), 16)
end

local now, sent, stopped = 0, 0, false
local frames = os.getenv("STUB_FRAMES") and io.open(os.getenv("STUB_FRAMES"), "ab")

local function address(text)
	local a, b, c, d = text:match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$")
	return ((a * 256 + b) * 256 + c) * 256 + d
end

local log = {}
function log:info(text, ...) print("[INFO] " .. text:format(...)) end
function log:warn(text, ...) print("[WARN] " .. text:format(...)) end
function log:error(text, ...) print("[ERROR] " .. text:format(...)) end
function log:fatal(text, ...) error(text:format(...), 2) end

-- Tasks

local mg = { config = { cores = {} } }
for core = 1, setting("CORES", 8) do
	mg.config.cores[core] = core - 1
end

local tasks, master = {}, coroutine.running()

local function describe(err)
	return debug.traceback(tostring(err), 2)
end

local function step()
	for _, task in ipairs(tasks) do
		if task.thread and coroutine.status(task.thread) == "suspended" then
			local ok, result = coroutine.resume(task.thread)
			if not ok then
				print("[FATAL] Lua error in task " .. task.name .. "\n" .. describe(result))
			elseif coroutine.status(task.thread) == "dead" then
				task.result = result
			end
			if coroutine.status(task.thread) == "dead" then
				task.thread = nil
			end
		end
	end
end

local task = {}
task.__index = task
function task:isRunning() return self.thread ~= nil end
function task:wait()
	while self.thread do
		mg.sleepMillisIdle(1)
	end
	return self.result
end

--- Checks that an argument survives the way to another Lua state.
local function check(value, depth)
	if type(value) == "table" and value.__queue then
		return
	end
	assert(type(value) ~= "function" and type(value) ~= "userdata", "a task's arguments are data")
	if type(value) == "table" then
		assert(getmetatable(value) == nil, "a task's arguments have no methods")
		for _, inner in pairs(value) do
			check(inner)
		end
	end
end

local function start(name, ...)
	local arguments, count = { ... }, select("#", ...)
	for i = 1, count do
		check(arguments[i])
	end
	local new = setmetatable({ name = name, thread = coroutine.create(function()
		return _G[name](unpack(arguments, 1, count))
	end) }, task)
	tasks[#tasks + 1] = new
	return new
end

local cores = 1
function mg.startTask(name, ...)
	cores = cores + 1
	if cores > #mg.config.cores then
		log:fatal("Not enough cores to start this task")
	end
	return start(name, ...)
end

local rounds = 0
function mg.sleepMillisIdle()
	rounds = rounds + 1
	if rounds > ROUNDS then
		print("[STUB] the script hangs")
		os.exit(3)
	end
	if coroutine.running() == master then
		step()
	else
		coroutine.yield()
	end
end

function mg.waitForTasks()
	local running
	repeat
		running = false
		for _, each in ipairs(tasks) do
			running = running or each:isRunning()
		end
		mg.sleepMillisIdle(1)
	until not running
end

function mg.running() return not stopped and sent < setting("INTERRUPT", math.huge) end
function mg.stop() stopped = true end
function mg.getTime()
	now = now + 1e-6
	return now
end

-- Frames

local ip4, tcp, packet = {}, {}, {}
function ip4:setSrc(number) self.frame.ip_src = bit.bswap(number) end
function ip4:setChecksum(number) self.frame.ip_checksum = hton16(number) end
function tcp:setSrcPort(number) self.frame.src_port = hton16(number) end
function tcp:setChecksum(number) self.frame.tcp_checksum = hton16(number) end

function packet:fill(args)
	local frame = self.frame
	for name, field in pairs { ethSrc = frame.eth_src, ethDst = frame.eth_dst } do
		local i = 0
		for byte in args[name]:gmatch("%x%x") do
			field[i], i = tonumber(byte, 16), i + 1
		end
	end
	frame.eth_type = hton16(0x0800)
	frame.version, frame.tos = 0x45, args.ip4TOS or 0
	frame.length, frame.id = hton16(args.ip4Length or 48), hton16(args.ip4ID or 0)
	frame.fragment = hton16(bit.lshift(args.ip4Flags or 0, 13))
	frame.ttl, frame.protocol, frame.ip_checksum = args.ip4TTL or 64, 6, 0
	frame.ip_src, frame.ip_dst = bit.bswap(address(args.ip4Src)), bit.bswap(address(args.ip4Dst))
	frame.src_port, frame.dst_port = hton16(args.tcpSrc), hton16(args.tcpDst)
	frame.seq, frame.ack = bit.bswap(args.tcpSeqNumber or 0), bit.bswap(args.tcpAckNumber or 0)
	frame.offset, frame.flags = 0x50, args.tcpSyn and 2 or 0
	frame.window, frame.tcp_checksum, frame.urgent = hton16(args.tcpWindow or 29200), 0, 0
end

local buffer = {}
buffer.__index = buffer
function buffer:getData() return ffi.cast("void*", self.bytes) end
function buffer:getTcpPacket()
	if not self.packet then
		local frame = ffi.cast("struct tcp_frame*", self.bytes)
		self.packet = { frame = frame, fill = packet.fill,
			ip4 = setmetatable({ frame = frame }, { __index = ip4 }),
			tcp = setmetatable({ frame = frame }, { __index = tcp }) }
	end
	return self.packet
end

local pool = {}
pool.__index = pool
local bufArray = {}
bufArray.__index = bufArray

function pool:bufArray()
	return setmetatable({ size = 63, maxSize = 63, pool = self }, bufArray)
end

function bufArray:allocN(size, n)
	assert(size == FRAME and n >= 1 and n <= self.maxSize)
	self.size = n
	for i = 1, n do
		self[i] = assert(table.remove(self.pool.free), "the pool has no buffers left")
	end
end

function bufArray:freeAfter(n)
	for i = n + 1, self.size do
		table.insert(self.pool.free, 1, self[i])
	end
end

local memory = {}
function memory.createMemPool(init)
	local new = setmetatable({ free = {} }, pool)
	for i = 1, 127 do
		local bytes = ffi.new("uint8_t[?]", FRAME)
		-- Memory that has been used before.
		ffi.fill(bytes, FRAME, 0xaa)
		new.free[i] = setmetatable({ bytes = bytes }, buffer)
		init(new.free[i])
	end
	return new
end

-- Devices

local queue = {}
queue.__index = queue
function queue:trySend(bufs, from, n)
	coroutine.yield()
	if self.dev == 0 and self.queue == setting("FAIL") and self.sent >= 100 then
		error("the device is gone")
	end
	n = math.min(n, setting("ACCEPT", 32))
	for i = from + 1, from + n do
		if frames then
			frames:write(string.char(self.dev, self.queue), ffi.string(bufs[i].bytes, FRAME))
		end
		table.insert(bufs.pool.free, 1, bufs[i])
	end
	self.sent, sent = self.sent + n, sent + n
	return n
end

local device = {}
function device.config(args)
	assert(args.disableOffloads, "checksums are the script's")
	if args.port >= setting("DEVICES", 2) then
		log:fatal("there are only %d ports, tried to configure port id %d", setting("DEVICES", 2), args.port)
	end
	return { id = args.port, getTxQueue = function(_, number)
		assert(number < args.txQueues)
		return setmetatable({ dev = args.port, queue = number, sent = 0, __queue = true }, queue)
	end }
end
function device.waitForLinks() return setting("LINKS", setting("DEVICES", 2)) end

local stats = {}
function stats.startStatsTask(args)
	assert(#args.txDevices > 0)
	start("__statistics")
end
function __statistics()
	while mg.running() do
		coroutine.yield()
	end
end

for name, module in pairs { device = device, log = log, memory = memory, moongen = mg, stats = stats } do
	package.loaded[name] = module
end

-- The order of MoonGen's own start

local arguments = {}
for i = 2, #arg do
	arguments[i - 1] = tostring(tonumber(arg[i]) or arg[i])
end
dofile(arg[1])
local ok, parsed = xpcall(function()
	local parser = require "argparse"("MoonGen " .. arg[1])
	local parse = parser.parse
	parser.parse = function() return parse(parser, arguments) end
	return configure(parser)
end, function(err) print(describe(err)) end)
if not ok then
	os.exit(0)
end
ok = xpcall(_G.master, function(err)
	print("[FATAL] Lua error in task master\n" .. describe(err))
end, parsed)
print(("[STUB] %d frames, %.6f s"):format(sent, now))
if frames then
	frames:close()
end
os.exit(ok and 0 or 1)
