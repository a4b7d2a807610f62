-- SPDX-License-Identifier: Apache-2.0 OR MIT
--- TCP SYNs of many sessions at line rate: 60 bytes each, from 256 source addresses with 97 source ports each.
--- The same frames as the `traffic` program of this repository sends, bit by bit, from a network card.

local bit    = require "bit"
local device = require "device"
local ffi    = require "ffi"
local log    = require "log"
local memory = require "memory"
local mg     = require "moongen"
local stats  = require "stats"

local FRAME         = 60 -- without frame check sequence, which the card adds
local ON_WIRE       = 64 -- with it
local IP_LENGTH     = 40 -- the rest of the frame is padding
local DONT_FRAGMENT = 2
local LONGEST_BURST = 0.001 -- seconds, if there is a rate
-- libmoon turns arguments into numbers and back, which keeps 14 digits.
local MOST_PACKETS  = 99999999999999

--- Returns a converter to a whole number within these limits.
local function whole(name, least, most)
	return function(text)
		local number = text:match("^%d+$") and tonumber(text)
		if number and number >= least and number <= most then
			return number
		end
		return nil, ("%s is a whole number from %d to %d, not '%s'"):format(name, least, most, text)
	end
end

local function rate(text)
	local number = text:match("^%d+%.?%d*$") and tonumber(text)
	if number then
		return number
	end
	return nil, ("--rate is a number of Mbit/s, 0 or more, not '%s'"):format(text)
end

--- Returns a converter to an Ethernet address as libmoon writes it.
local function mac(name)
	return function(text)
		local bytes = { text:match("^(%x%x?)[:-](%x%x?)[:-](%x%x?)[:-](%x%x?)[:-](%x%x?)[:-](%x%x?)$") }
		if #bytes ~= 6 then
			return nil, ("%s is an Ethernet address such as 02:00:00:00:00:02, not '%s'"):format(name, text)
		end
		for i, byte in ipairs(bytes) do
			bytes[i] = ("%02x"):format(tonumber(byte, 16))
		end
		return table.concat(bytes, ":")
	end
end

--- Returns the number of an IPv4 address, or nil.
local function parseAddress(text)
	local number = 0
	local bytes = { text:match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$") }
	for _, byte in ipairs(bytes) do
		if #byte > 3 or tonumber(byte) > 255 then
			return nil
		end
		number = number * 256 + tonumber(byte)
	end
	return #bytes == 4 and number or nil
end

local function address(name)
	return function(text)
		if parseAddress(text) then
			return text
		end
		return nil, ("%s is an IPv4 address such as 198.18.0.0, not '%s'"):format(name, text)
	end
end

-- Defaults are strings because help shows no others.
function configure(parser)
	parser:description("Sends TCP SYNs of many sessions, as many as the ports can.")
	parser:argument("port", "Ports to send from, by number as MoonGen lists them."):args("+")
		:convert(whole("port", 0, 255))
	parser:option("-a --addresses", "Source addresses."):default("256"):convert(whole("--addresses", 1, 2 ^ 32))
	parser:option("-p --ports", "Source ports per address."):default("97"):convert(whole("--ports", 1, 65536))
	parser:option("--base-address", "First source address."):default("198.18.0.0"):convert(address("--base-address"))
	parser:option("--base-port", "First source port."):default("1024"):convert(whole("--base-port", 0, 65535))
	parser:option("-d --destination", "Destination address."):default("198.19.0.1"):convert(address("--destination"))
	parser:option("--destination-port", "Destination port."):default("80")
		:convert(whole("--destination-port", 0, 65535))
	parser:option("-m --mac", "Ethernet address of the receiving port."):default("02:00:00:00:00:02")
		:convert(mac("--mac"))
	parser:option("--source-mac", "Ethernet address of the sender."):default("02:00:00:00:00:01")
		:convert(mac("--source-mac"))
	parser:option("-r --rate", "Mbit/s per port, of frames of 64 bytes; 0 is as fast as possible."):default("0")
		:convert(rate)
	parser:option("-t --threads", "Sending threads per port; each takes a core, and one more is needed."):default("1")
		:convert(whole("--threads", 1, 64))
	parser:option("-n --count", "Packets to send in total; 0 is until interrupted."):default("0")
		:convert(whole("--count", 0, MOST_PACKETS))
	local args = parser:parse()
	local seen = {}
	for _, port in ipairs(args.port) do
		if seen[port] then
			parser:error(("port %d is named twice"):format(port))
		end
		seen[port] = true
	end
	if parseAddress(args.base_address) + args.addresses - 1 > 2 ^ 32 - 1 then
		parser:error(("--addresses %d from --base-address %s exceed 255.255.255.255"):format(
			args.addresses, args.base_address))
	end
	if args.base_port + args.ports - 1 > 65535 then
		parser:error(("--ports %d from --base-port %d exceed 65535"):format(args.ports, args.base_port))
	end
	return args
end

--- Waits until all senders have ended. Returns the number of packets that they have sent.
local function waitForSenders(senders)
	local sent, working = 0, #senders
	while working > 0 do
		for number, task in pairs(senders) do
			if not task:isRunning() then
				-- A task that has failed returns nothing.
				local count = task:wait()
				if type(count) ~= "number" then
					-- The others, which may have no end, and the statistics stop.
					mg.stop()
					mg.waitForTasks()
					log:fatal("sender %d has failed, see above; the others were stopped", number)
				end
				senders[number] = nil
				sent, working = sent + count, working - 1
			end
		end
		mg.sleepMillisIdle(10)
	end
	return sent
end

function master(args)
	local threads = #args.port * args.threads
	if #mg.config.cores < threads + 1 then
		log:fatal("%d sending threads take %d cores, and there are %d: lower --threads, or see `cores` in dpdk-conf.lua",
			threads, threads + 1, #mg.config.cores)
	end
	local devices = {}
	for i, port in ipairs(args.port) do
		-- The checksums are in the frames, so that any device sends the same.
		devices[i] = device.config { port = port, txQueues = args.threads, disableOffloads = true }
	end
	if device.waitForLinks() < #devices then
		log:fatal("a port has no link")
	end
	stats.startStatsTask { txDevices = devices }
	local senders = {}
	for _, dev in ipairs(devices) do
		for thread = 0, args.threads - 1 do
			-- An exact total: what does not divide evenly goes to the first senders.
			local number = #senders
			local count = math.floor(args.count / threads)
			if number < args.count % threads then
				count = count + 1
			end
			if args.count > 0 and count == 0 then
				break
			end
			senders[number + 1] = mg.startTask("send", dev:getTxQueue(thread), {
				addresses = args.addresses, ports = args.ports,
				baseAddress = args.base_address, basePort = args.base_port,
				destination = args.destination, destinationPort = args.destination_port,
				mac = args.mac, sourceMac = args.source_mac,
				-- Seconds from one frame to the next.
				gap = args.rate > 0 and ON_WIRE * 8 * args.threads / (args.rate * 1e6) or 0,
				count = count,
			})
		end
	end
	local sent = waitForSenders(senders)
	-- The statistics run until they are told to stop.
	mg.stop()
	mg.waitForTasks()
	log:info("%d packets sent", sent)
	if args.count > 0 and sent < args.count then
		log:fatal("interrupted before all of %d packets were sent", args.count)
	end
end

local function fold(sum)
	sum = bit.band(sum, 0xffff) + bit.rshift(sum, 16)
	return bit.band(sum, 0xffff) + bit.rshift(sum, 16)
end

--- Returns the sum of an address's two halves.
local function halves(number)
	return math.floor(number / 65536) + number % 65536
end

local function checksum(sum)
	return bit.bxor(fold(sum), 0xffff)
end

--- Sends everything that is in the buffers. Returns the number of packets, which is less only if the end was asked for.
local function sendAll(queue, bufs, n)
	local sent = 0
	while sent < n and mg.running() do
		sent = sent + queue:trySend(bufs, sent, n - sent)
	end
	if sent < n then
		bufs:freeAfter(sent)
	end
	return sent
end

--- Packet n is of address n % addresses and port n / addresses % ports, so that all sessions get equally many.
--- Returns the number of packets sent.
function send(queue, options)
	local destination = halves(parseAddress(options.destination))
	-- The words that are the same in all packets: version and length to protocol, and the destination.
	local ipSum = 0x4500 + IP_LENGTH + bit.lshift(DONT_FRAGMENT, 13) + 64 * 256 + 6 + destination
	-- Pseudo header (protocol, length), destination port, sequence number, header length with SYN, window.
	local tcpSum = destination + 6 + 20 + options.destinationPort + 1 + 0x5002 + 0xffff
	local pool = memory.createMemPool(function(buf)
		ffi.fill(buf:getData(), FRAME)
		buf:getTcpPacket():fill {
			ethSrc = options.sourceMac, ethDst = options.mac,
			ip4Length = IP_LENGTH, ip4ID = 0, ip4Flags = DONT_FRAGMENT, ip4TTL = 64,
			ip4Src = options.baseAddress, ip4Dst = options.destination,
			tcpSrc = options.basePort, tcpDst = options.destinationPort,
			tcpSeqNumber = 1, tcpAckNumber = 0, tcpSyn = 1, tcpWindow = 0xffff,
		}
	end)
	local bufs = pool:bufArray()
	local addresses, ports, gap, count = options.addresses, options.ports, options.gap, options.count
	local baseAddress, basePort = parseAddress(options.baseAddress), options.basePort
	local burst = bufs.maxSize
	if gap > 0 then
		burst = math.max(1, math.min(burst, math.floor(LONGEST_BURST / gap)))
	end
	local addressIndex, portIndex, sent = 0, 0, 0
	local start = mg.getTime()
	while mg.running() and (count == 0 or sent < count) do
		local n = burst
		if count > 0 then
			n = math.min(n, count - sent)
		end
		bufs:allocN(FRAME, n)
		for i = 1, n do
			local packet = bufs[i]:getTcpPacket()
			local from, port = baseAddress + addressIndex, basePort + portIndex
			local sum = halves(from)
			packet.ip4:setSrc(from)
			packet.ip4:setChecksum(checksum(ipSum + sum))
			packet.tcp:setSrcPort(port)
			packet.tcp:setChecksum(checksum(tcpSum + sum + port))
			addressIndex = addressIndex + 1
			if addressIndex == addresses then
				addressIndex = 0
				portIndex = portIndex + 1
				if portIndex == ports then
					portIndex = 0
				end
			end
		end
		-- Rates are kept here because few devices have a limiter, and libmoon sends at full speed on the others.
		if gap > 0 then
			local due = start + sent * gap
			while mg.getTime() < due and mg.running() do end
		end
		sent = sent + sendAll(queue, bufs, n)
	end
	log:info("%d packets sent by this thread", sent)
	return sent
end
