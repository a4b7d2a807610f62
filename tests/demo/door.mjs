// Leads a browser to a daemon in another network namespace. A Unix socket belongs to no namespace:
//
//   browser -> 127.0.0.1 here -> `door.mjs outside SOCKET` -> SOCKET -> `door.mjs inside SOCKET` -> 127.0.0.1:9470 there
//
// The outer half prints the port of its address: 9470, or another one if that is taken.
import { connect, createServer } from "node:net";

const PORT = 9470;
const [half, socket] = process.argv.slice(2);

const server = createServer((from) => {
  const to = half === "outside" ? connect(socket) : connect(PORT, "127.0.0.1");
  from.pipe(to).pipe(from);
  from.on("error", () => to.destroy()).on("close", () => to.destroy());
  to.on("error", () => from.destroy()).on("close", () => from.destroy());
});
if (half === "inside") {
  server.listen(socket);
} else {
  server.on("error", () => server.listen(0, "127.0.0.1"));
  server.on("listening", () => console.log(server.address().port));
  server.listen(PORT, "127.0.0.1");
}
