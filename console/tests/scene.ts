// A daemon with real traffic, and a browser that shows its console.
import { test as base, expect, type Page } from "@playwright/test";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { createWriteStream, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const PROBES = join(HERE, "../../probes");
export const ROLES = ["viewer", "collector", "operator", "admin"] as const;
/** The name in the certificate of an operator. */
export const PERSON = "person.example";
export type Role = (typeof ROLES)[number];

export const source = (name: string) => JSON.parse(readFileSync(join(PROBES, name, `${name}.json`), "utf8"));
export const capture = (name: string) => join(PROBES, name, "capture.pcap");

/** A daemon that listens on TCP with TLS and tokens, and on a Unix socket that a proxy makes reachable. */
export class Scene {
  private daemon: ChildProcess | null = null;
  private traffic: ChildProcess;
  /** The DNS server that names 192.0.2.1, in the namespace of the daemon and the browser. */
  private dns: ChildProcess;
  private proxy: Server;
  private directory = mkdtempSync(join(tmpdir(), "twinprobe-console-"));
  private bpffs = `/sys/fs/bpf/twinprobe-${process.env.CONSOLE_ID}`;
  readonly tokens = {} as Record<Role, string>;
  /** The address of the daemon for the browser. */
  url = "";
  /** The address of the proxy to the Unix socket, which needs no token. */
  local = "";
  private port = 0;
  /** Further arguments of the daemon, from the next start on. */
  more: string[] = [];

  private constructor() {
    const lines = ROLES.map((role) => {
      const [token, line] = this.run("token", role, role).trim().split("\n").filter(Boolean).slice(-2) as [string, string];
      this.tokens[role] = token.split(/\s/).pop()!;
      return line.trim();
    });
    writeFileSync(join(this.directory, "tokens"), `${lines.join("\n")}\n`, { mode: 0o600 });
    const openssl = (...words: string[]) => execFileSync("openssl", words, { stdio: "ignore" });
    const files = (key: string, out: string) => ["-keyout", this.path(key), "-out", this.path(out)];
    const fresh = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    const own = ["req", "-x509", ...fresh, "-days", "2"];
    openssl(...own, "-subj", "/CN=twinprobe", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE", ...files("key.pem", "cert.pem"));
    // The certificate of the authority that signs clients' certificates, and the certificate of an operator.
    openssl(...own, "-subj", "/CN=clients", ...files("clients-key.pem", "clients.pem"));
    openssl("req", "-new", ...fresh, "-subj", "/CN=person", ...files("person-key.pem", "person.csr"));
    writeFileSync(this.path("person.cnf"), `subjectAltName=DNS:${PERSON}\nextendedKeyUsage=clientAuth\n`);
    openssl(
      "x509", "-req", "-in", this.path("person.csr"), "-CA", this.path("clients.pem"), "-CAkey", this.path("clients-key.pem"),
      "-days", "2", "-extfile", this.path("person.cnf"), "-out", this.path("person.pem"),
    );
    writeFileSync(this.path("roles"), `${PERSON} operator\n`);
    this.traffic = spawn("nsenter", [`--net=/run/netns/${process.env.CONSOLE_CLIENT}`, "node", join(HERE, "traffic.mjs")], { stdio: "ignore" });
    this.dns = spawn("dnsmasq", [
      "--keep-in-foreground", "--no-resolv", "--no-hosts", "--user=root", "--port=5353", "--listen-address=127.0.0.1", "--bind-interfaces",
      "--conf-file=/dev/null", "--pid-file", "--local-ttl=300", "--host-record=client.example,192.0.2.1",
    ], { stdio: "ignore" });
    this.proxy = createServer((incoming, outgoing) => {
      const { origin: _, ...headers } = incoming.headers;
      const onward = request({ socketPath: this.path("sock"), method: incoming.method, path: incoming.url, headers }, (answer) => {
        outgoing.writeHead(answer.statusCode!, answer.headers);
        answer.pipe(outgoing);
      });
      onward.on("error", () => outgoing.destroy());
      outgoing.on("close", () => onward.destroy());
      incoming.pipe(onward);
    });
  }

  static async make(): Promise<Scene> {
    const scene = new Scene();
    await new Promise<void>((resolve) => scene.proxy.listen(0, "127.0.0.1", resolve));
    scene.local = `http://127.0.0.1:${(scene.proxy.address() as { port: number }).port}/`;
    await scene.start();
    return scene;
  }

  path(name: string) {
    return join(this.directory, name);
  }

  private run(...words: string[]): string {
    return execFileSync(process.env.TWINPROBE!, words, { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
  }

  /** Starts the daemon, at the same port as before. */
  async start() {
    const daemon = spawn(process.env.TWINPROBE!, [
      "serve", "--listen", `127.0.0.1:${this.port}`, "--listen", `unix:${this.path("sock")}`, "--tokens", this.path("tokens"),
      "--tls-cert", this.path("cert.pem"), "--tls-key", this.path("key.pem"), "--state-dir", this.path("state"), "--bpffs", this.bpffs,
      "--client-ca", this.path("clients.pem"), "--client-roles", this.path("roles"), "--node-name", "gw-1", "--detach-on-exit",
      "--names", "dns", "--names-dns", "127.0.0.1:5353", ...this.more,
    ], { stdio: ["ignore", "ignore", "pipe"] });
    this.daemon = daemon;
    const log = createWriteStream(this.path("log"), { flags: "a" });
    let text = "";
    await new Promise<void>((resolve, reject) => {
      daemon.stderr!.on("data", (data: Buffer) => {
        log.write(data);
        text += data;
        const found = /listening on (?:https?:\/\/)?127\.0\.0\.1:(\d+)/.exec(text);
        if (found && /listening on unix:/.test(text)) {
          this.port = Number(found[1]);
          resolve();
        }
      });
      daemon.on("exit", () => reject(new Error(`the daemon has ended:\n${text}`)));
    });
    this.url = `https://127.0.0.1:${this.port}/`;
  }

  /** Ends the daemon and waits for its end. */
  async stop(signal: NodeJS.Signals) {
    const { daemon } = this;
    this.daemon = null;
    if (!daemon) return;
    const ended = new Promise((resolve) => daemon.once("exit", resolve));
    daemon.kill(signal);
    await ended;
  }

  /** Sends a request over the Unix socket, with all rights. */
  api(method: string, path: string, body?: unknown, socket = "sock"): Promise<{ status: number; text: string }> {
    return new Promise((resolve, reject) => {
      const headers = body === undefined ? {} : { "content-type": "application/json" };
      const sent = request({ socketPath: this.path(socket), method, path, headers }, (answer) => {
        let text = "";
        answer.on("data", (data) => (text += data));
        answer.on("end", () => resolve({ status: answer.statusCode!, text }));
      });
      sent.on("error", reject);
      sent.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }

  /** Deploys a probe of the library on the interface with traffic. */
  async deploy(template: string, more: object = {}, name = template) {
    const { interface: _, name: __, ...config } = source(template);
    const answer = await this.api("PUT", `/v1/probes/${name}`, { ...config, interface: "server0", ...more });
    if (answer.status >= 300) throw new Error(answer.text);
  }

  async end() {
    await this.stop("SIGTERM");
    this.traffic.kill();
    this.dns.kill();
    this.proxy.close();
    this.proxy.closeAllConnections?.();
    rmSync(this.directory, { recursive: true, force: true });
    rmSync(this.bpffs, { recursive: true, force: true });
  }
}

/** A second daemon, at the other end of the link. Its name is gw-2. The first daemon knows it from a file of nodes. */
export class Neighbour {
  private daemon: ChildProcess | null = null;
  private bpffs = `/sys/fs/bpf/twinprobe-${process.env.CONSOLE_ID}-2`;

  private constructor(private scene: Scene) {}

  /** Starts it with probes of the library, and restarts the first daemon with `--nodes`. One node is down. */
  static async make(scene: Scene, ...templates: string[]): Promise<Neighbour> {
    const neighbour = new Neighbour(scene);
    await neighbour.start();
    for (const template of templates) {
      const { interface: _, name: __, ...config } = source(template);
      const body = { ...config, interface: "client0", window: { interval: "1s", retain: 200 } };
      const answer = await scene.api("PUT", `/v1/probes/${template}`, body, "sock-2");
      if (answer.status >= 300) throw new Error(answer.text);
    }
    const lines = [`gw-1 ${scene.url.replace(/\/$/, "")} zone=west`, `gw-2 unix:${scene.path("sock-2")} zone=east`, `gw-3 unix:/run/twinprobe-gw-3.sock zone=east`];
    writeFileSync(scene.path("nodes"), `${lines.join("\n")}\n`);
    await scene.stop("SIGTERM");
    writeFileSync(scene.path("nodes-token"), scene.tokens.collector, { mode: 0o600 });
    scene.more = ["--nodes", scene.path("nodes"), "--nodes-token-file", scene.path("nodes-token"), "--nodes-ca", scene.path("cert.pem")];
    await scene.start();
    return neighbour;
  }

  /** Starts it with its last probes. */
  async start() {
    const { scene } = this;
    const daemon = spawn("nsenter", [
      `--net=/run/netns/${process.env.CONSOLE_CLIENT}`, process.env.TWINPROBE!, "serve", "--listen", `unix:${scene.path("sock-2")}`,
      "--state-dir", scene.path("state-2"), "--bpffs", this.bpffs, "--node-name", "gw-2", "--detach-on-exit",
      "--tokens", scene.path("tokens"),
    ], { stdio: ["ignore", "ignore", "pipe"] });
    this.daemon = daemon;
    let text = "";
    await new Promise<void>((resolve, reject) => {
      daemon.stderr!.on("data", (data: Buffer) => {
        text += data;
        if (/listening on unix:/.test(text)) resolve();
      });
      daemon.on("exit", () => reject(new Error(`the second daemon has ended:\n${text}`)));
    });
  }

  /** Ends it and waits for its end. */
  async stop() {
    const { daemon } = this;
    this.daemon = null;
    if (!daemon) return;
    const ended = new Promise((resolve) => daemon.once("exit", resolve));
    daemon.kill("SIGTERM");
    await ended;
  }

  /** Ends it, and restarts the first daemon without `--nodes`. */
  async end() {
    await this.stop();
    await this.scene.stop("SIGTERM");
    this.scene.more = [];
    await this.scene.start();
    rmSync(this.bpffs, { recursive: true, force: true });
  }
}

/** Serves the page from the folder CONSOLE_DIST instead of the binary, with the same headers. So a change of the
 * console needs no build of the daemon. */
export async function fromDist(page: Page) {
  const dist = process.env.CONSOLE_DIST!;
  const types: Record<string, string> = { js: "text/javascript", css: "text/css", json: "application/json", html: "text/html; charset=utf-8", txt: "text/plain" };
  await page.route(/^https?:\/\/[^/]+\/(console\/[^/]+)?$/, async (route) => {
    const name = new URL(route.request().url()).pathname.replace(/^\/(console\/)?/, "") || "index.html";
    const headers = (await route.fetch({ url: new URL("/", route.request().url()).href })).headers();
    const kept = { "content-security-policy": headers["content-security-policy"]!, "content-type": types[name.split(".").pop()!]! };
    await route.fulfill({ status: 200, headers: kept, body: readFileSync(join(dist, name)) });
  });
}

interface Fixtures {
  /** The statuses of refused requests that the test expects; the browser writes a line for each into its console. */
  expected: number[];
}

export const test = base.extend<Fixtures, { scene: Scene }>({
  scene: [
    async ({}, use) => {
      const scene = await Scene.make();
      await scene.deploy("packet-counter", { window: { interval: "1s", retain: 200 } });
      await scene.deploy("top-talkers", { window: { interval: "1s", retain: 200 } });
      await scene.deploy("packet-sizes", { window: { interval: "1s", retain: 200 } });
      await scene.deploy("sampled-headers", { window: { interval: "1s" } });
      await use(scene);
      await scene.end();
    },
    { scope: "worker", auto: true },
  ],
  expected: [[], { option: true }],
  page: async ({ page, expected }, use) => {
    const errors: string[] = [];
    page.on("pageerror", (error) => errors.push(error.stack ?? error.message));
    page.on("console", (message) => {
      const refused = /^Failed to load resource: the server responded with a status of (\d+)/.exec(message.text());
      if (message.type() === "error" && !(refused && expected.includes(Number(refused[1])))) errors.push(message.text());
    });
    if (process.env.CONSOLE_DIST) await fromDist(page);
    await use(page);
    expect(errors, "errors in the browser's console").toEqual([]);
  },
});

export { expect };

// The row of the probe in the table of the overview. Cards and alerts name probes as well, once their numbers
// have arrived.
export const listed = (page: Page, probe: string) =>
  page.getByRole("region", { name: "Probes" }).getByRole("link", { name: probe, exact: true });

/** Opens a view over TLS with the token of a role. */
export async function open(page: Page, scene: Scene, role: Role, path = "") {
  await page.addInitScript((token) => sessionStorage.setItem("twinprobe-token", token), scene.tokens[role]);
  await page.goto(`${scene.url}#/${path}`);
  await expect(page.getByText("live", { exact: true })).toBeVisible();
}
