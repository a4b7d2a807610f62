// The demo's clients: 40 addresses, a few busy ones and many quiet ones. They fetch pages of all lengths over HTTP
// and HTTPS, ask for names and for the time, and send records. Their pace varies between about 50 and 250 exchanges
// a second.
//   clients.mjs SECONDS
import { createSocket } from "node:dgram";
import { get } from "node:http";
import { get as getSecure } from "node:https";
import { connect } from "node:net";

const SERVER = "192.0.2.2";
const CLIENTS = 40;
const TICK_MS = 20;
const NAMES = ["www.example.net", "mail.example.net", "api.example.org", "cdn.example.com", "no-such.example.net"];
const LENGTHS = [300, 1500, 1500, 6000, 20_000, 120_000];

const end = Date.now() + Number(process.argv[2]) * 1000;
const one = (list) => list[Math.floor(Math.random() * list.length)];
/** A client: the first ones are chosen far more often than the last ones. */
const someone = () => `198.51.100.${1 + Math.floor(CLIENTS ** Math.random())}`;
const ignore = (socket) => socket.on("error", () => {});
const taken = (response) => response.resume();

/** Sends a datagram and takes the answer, if one comes. */
function ask(port, question) {
  const socket = ignore(createSocket("udp4"));
  const close = setTimeout(() => socket.close(), 1000);
  socket.on("message", () => (clearTimeout(close), socket.close()));
  socket.bind(0, someone(), () => socket.send(question, port, SERVER));
}

const encode = (name) => Buffer.concat([...name.split("."), ""].map((label) => Buffer.from([label.length, ...Buffer.from(label)])));
const number = () => Math.floor(Math.random() * 65536);

const exchanges = {
  http: () => ignore(get({ host: SERVER, path: `/${one(LENGTHS)}`, localAddress: someone(), agent: false }, taken)),
  https: () => ignore(getSecure({
    host: SERVER, path: `/${one(LENGTHS)}`, localAddress: someone(), agent: false, servername: one(NAMES), rejectUnauthorized: false,
  }, taken)),
  record: () => ignore(connect({ host: SERVER, port: 5432, localAddress: someone() })).resume().end(Buffer.alloc(one(LENGTHS))),
  name: () => {
    const head = Buffer.from([0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    head.writeUInt16BE(number());
    ask(53, Buffer.concat([head, encode(one(NAMES)), Buffer.from([0, 1, 0, 1])]));
  },
  time: () => ask(123, Buffer.from([0x23, ...Buffer.alloc(47)])),
};
const MIX = ["http", "http", "http", "https", "record", "name", "name", "name", "name", "time"];

const begin = Date.now();
let owed = 0;
const timer = setInterval(() => {
  const now = Date.now();
  if (now > end) return clearInterval(timer);
  owed += (TICK_MS / 1000) * (150 + 100 * Math.sin((now - begin) / 9000));
  // A machine that is too slow skips exchanges.
  for (owed = Math.min(owed, 10); owed >= 1; owed -= 1) exchanges[one(MIX)]();
}, TICK_MS);
