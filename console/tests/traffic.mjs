// Sends UDP packets from several addresses until it is ended: 200, 100 and 50 in a second, of different lengths.
import { createSocket } from "node:dgram";

const senders = [["192.0.2.1", 4], ["192.0.2.11", 2], ["192.0.2.12", 1]].map(([address, packets]) => {
  const socket = createSocket("udp4");
  socket.on("error", () => {});
  socket.bind(0, address);
  return { socket, packets };
});
let number = 0;
const STEP = 20;
let due = performance.now();
setInterval(() => {
  const now = performance.now();
  // What a busy machine has held up is sent now, up to a second of it.
  for (due = Math.max(due, now - 1000); due <= now; due += STEP) {
    for (const { socket, packets } of senders) {
      for (let index = 0; index < packets; index += 1) {
        number += 1;
        socket.send(Buffer.alloc([18, 200, 1200][number % 3]), 5000 + (number % 2), "192.0.2.2");
      }
    }
  }
}, STEP);
