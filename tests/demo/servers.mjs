// The servers of the demo's clients: HTTP, HTTPS, DNS, NTP and one that only receives.
//   servers.mjs KEY CERTIFICATE
import { createSocket } from "node:dgram";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createSecure } from "node:https";
import { createServer as createTcp } from "node:net";

const [key, cert] = process.argv.slice(2).map((file) => readFileSync(file));
const ADDRESS = "192.0.2.2";
const ignore = (socket) => socket.on("error", () => {});

/** Answers with as many bytes as the path says. */
const answer = (request, response) => response.end(Buffer.alloc(Number(request.url.slice(1)) || 0));
createServer(answer).on("connection", ignore).listen(80, ADDRESS);
createSecure({ key, cert }, answer).on("connection", ignore).on("tlsClientError", () => {}).listen(443, ADDRESS);
createTcp((socket) => ignore(socket).resume().on("end", () => socket.end())).listen(5432, ADDRESS);

/** Answers datagrams at a port. */
function datagrams(port, reply) {
  const socket = ignore(createSocket("udp4"));
  socket.on("message", (question, from) => socket.send(reply(question), from.port, from.address));
  socket.bind(port, ADDRESS);
}

// Answers with an address, or with NXDOMAIN for a name that begins with "no-".
datagrams(53, (question) => {
  const missing = question.subarray(13, 16).toString() === "no-";
  const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 2]);
  const head = Buffer.from(question.subarray(0, 12));
  head.writeUInt16BE(missing ? 0x8183 : 0x8180, 2);
  head.writeUInt16BE(missing ? 0 : 1, 6);
  return Buffer.concat([head, question.subarray(12), missing ? Buffer.alloc(0) : record]);
});
datagrams(123, (question) => Buffer.concat([Buffer.from([0x24, 2]), question.subarray(2)]));
