-- SPDX-License-Identifier: Apache-2.0 OR MIT
--- TCP SYNs of many sessions at line rate: 60 bytes each, from 256 source addresses with 97 source ports each.
--- The same workload as the `traffic` program of this repository, from a network card.

local device   = require "device"
local log      = require "log"
local memory   = require "memory"
local mg       = require "moongen"
local stats    = require "stats"

local FRAME = 60 -- without frame check sequence, which the card adds

function configure(parser)
	parser:description("Sends TCP SYNs of many sessions, as many as the ports can.")
	parser:argument("port", "Ports to send from, by number as MoonGen lists them."):args("+"):convert(tonumber)
	parser:option("-a --addresses", "Source addresses."):default(256):convert(tonumber)
	parser:option("-p --ports", "Source ports per address."):default(97):convert(tonumber)
	parser:option("--base-address", "First source address."):default("198.18.0.0")
	parser:option("--base-port", "First source port."):default(1024):convert(tonumber)
	parser:option("-d --destination", "Destination address."):default("198.19.0.1")
	parser:option("--destination-port", "Destination port."):default(80):convert(tonumber)
	parser:option("-m --mac", "Ethernet address of the receiving port."):default("02:00:00:00:00:02")
	parser:option("-r --rate", "Mbit/s per port; 0 is line rate."):default(0):convert(tonumber)
	parser:option("-t --threads", "Sending threads per port."):default(1):convert(tonumber)
	parser:option("-n --count", "Packets to send in total; 0 is until interrupted."):default(0):convert(tonumber)
	return parser:parse()
end

function master(args)
	local senders = #args.port * args.threads
	for i, port in ipairs(args.port) do
		args.port[i] = device.config { port = port, txQueues = args.threads }
	end
	device.waitForLinks()
	stats.startStatsTask { txDevices = args.port }
	local sender = 0
	for _, dev in ipairs(args.port) do
		for thread = 0, args.threads - 1 do
			local queue = dev:getTxQueue(thread)
			if args.rate > 0 then
				queue:setRate(args.rate / args.threads)
			end
			-- An exact total: what does not divide evenly goes to the first senders.
			local count = 0
			if args.count > 0 then
				count = math.floor(args.count / senders)
				if sender < args.count % senders then
					count = count + 1
				end
			end
			if args.count == 0 or count > 0 then
				mg.startTask("send", queue, args, count)
			end
			sender = sender + 1
		end
	end
	mg.waitForTasks()
end

--- Packet n is of address n % addresses and port n / addresses % ports, so that all sessions get equally many.
function send(queue, args, count)
	local baseAddress = parseIPAddress(args.base_address)
	local pool = memory.createMemPool(function(buf)
		buf:getTcpPacket():fill {
			ethSrc = queue,
			ethDst = args.mac,
			ip4Src = args.base_address,
			ip4Dst = args.destination,
			tcpSrc = args.base_port,
			tcpDst = args.destination_port,
			tcpSeqNumber = 1,
			tcpSyn = 1,
			tcpWindow = 65535,
			pktLength = FRAME,
		}
		-- Padding up to the smallest frame, not six bytes of payload.
		buf:getTcpPacket().ip4:setLength(40)
	end)
	local bufs = pool:bufArray()
	local address, port, sent = 0, 0, 0
	while mg.running() and (count == 0 or sent < count) do
		local n = bufs.maxSize
		if count > 0 then
			n = math.min(n, count - sent)
		end
		bufs:allocN(FRAME, n)
		for i = 1, n do
			local packet = bufs[i]:getTcpPacket()
			packet.ip4.src:set(baseAddress + address)
			packet.tcp:setSrcPort(args.base_port + port)
			address = address + 1
			if address == args.addresses then
				address = 0
				port = port + 1
				if port == args.ports then
					port = 0
				end
			end
		end
		bufs:offloadTcpChecksums()
		sent = sent + queue:send(bufs)
	end
	log:info("%d packets sent by this thread", sent)
end
