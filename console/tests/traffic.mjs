// Sends UDP packets of different lengths from several addresses, 200, 100 and 50 a second, until it is killed.
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
  // A busy machine catches up here, by at most a second.
  for (due = Math.max(due, now - 1000); due <= now; due += STEP) {
    for (const { socket, packets } of senders) {
      for (let index = 0; index < packets; index += 1) {
        number += 1;
        socket.send(Buffer.alloc([18, 200, 1200][number % 3]), 5000 + (number % 2), "192.0.2.2");
      }
    }
  }
}, STEP);
