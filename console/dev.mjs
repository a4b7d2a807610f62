// Serves the console to its developers: bundles it at each load of the page, and forwards other requests to a daemon.
//   TWINPROBE_SERVER=unix:/PATH|http://HOST:PORT PORT=8080 node dev.mjs
import { createServer, request } from "node:http";
import { files } from "./build.mjs";

const server = process.env.TWINPROBE_SERVER ?? "unix:/run/twinprobe/twinprobe.sock";
const target = server.startsWith("unix:")
  ? { socketPath: server.slice(5) }
  : { host: new URL(server).hostname, port: new URL(server).port };
const types = { js: "text/javascript", css: "text/css", json: "application/json", html: "text/html; charset=utf-8", txt: "text/plain" };
const csp =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
  "frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
let built = new Map();

createServer(async (incoming, outgoing) => {
  const name = incoming.url === "/" ? "index.html" : incoming.url.replace(/^\/console\//, "");
  if (incoming.url === "/") built = await files({ minify: false, sourcemap: "inline" });
  if (built.has(name)) {
    outgoing.writeHead(200, { "content-type": types[name.split(".").pop()], "content-security-policy": csp });
    outgoing.end(built.get(name));
    return;
  }
  const { host: _, origin: __, ...headers } = incoming.headers;
  const options = { ...target, method: incoming.method, path: incoming.url, headers: { ...headers, host: "localhost" } };
  const onward = request(options, (answer) => {
    outgoing.writeHead(answer.statusCode, answer.headers);
    answer.pipe(outgoing);
  });
  onward.on("error", () => outgoing.destroy());
  outgoing.on("close", () => onward.destroy());
  incoming.pipe(onward);
}).listen(Number(process.env.PORT ?? 8080), "127.0.0.1");
