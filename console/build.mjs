// Builds the console into dist/: index.html and files with a hash of their content in their names, each also
// compressed. The daemon's build embeds these files.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "dist");
/** The largest size of all files together, compressed by gzip, in bytes. */
const LIMIT = 300 * 1024;

/** The library of probes in `probes/`. A source that both directions share is in it once. */
export function library() {
  const probes = join(here, "../probes");
  const index = JSON.parse(readFileSync(join(probes, "index.json"), "utf8"));
  // The windows that the console shows have the fields.
  return index.map(({ fields: _, ...entry }) => {
    const config = JSON.parse(readFileSync(join(probes, entry.name, `${entry.name}.json`), "utf8"));
    if (config.egress && config.ingress && config.egress.source === config.ingress.source) {
      config.egress.source = null;
    }
    return { ...entry, config };
  });
}

/** The rules that combine the values of CPUs, from the description of the API. */
function aggregations() {
  const text = readFileSync(join(here, "../api/openapi.yaml"), "utf8");
  return /\n +agg:\n[^]*?enum: \[([^\]]*)\]/.exec(text)[1].split(", ");
}

/** Bundles scripts and styles. Returns them by their names without a hash. */
export async function bundle(options = {}) {
  const result = await build({
    absWorkingDir: here,
    entryPoints: { main: "src/main.tsx" },
    bundle: true,
    splitting: true,
    format: "esm",
    target: "es2022",
    outdir: "dist",
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    assetNames: "[name]-[hash]",
    minify: true,
    legalComments: "none",
    metafile: true,
    write: false,
    define: { AGGREGATIONS: JSON.stringify(aggregations()) },
    ...options,
  });
  return new Map(result.outputFiles.map((file) => [file.path.slice(dist.length + 1), Buffer.from(file.contents)]));
}

/** Bundles the fleet page for the operator. The names of its files begin with `fleet`. It shares no file. */
async function fleet() {
  const out = await bundle({ entryPoints: { fleet: "src/fleet.tsx" }, splitting: false });
  const file = (extension) => [...out.keys()].find((name) => name.endsWith(extension));
  const html = readFileSync(join(here, "src/fleet.html"), "utf8").replaceAll("FLEET_JS", file(".js")).replaceAll("FLEET_CSS", file(".css"));
  return out.set("fleet.html", Buffer.from(html));
}

/** Returns all files of the console by name. */
export async function files(options) {
  const out = await bundle(options);
  const named = (name, extension, content) => {
    const hash = createHash("sha256").update(content).digest("hex").slice(0, 8).toUpperCase();
    out.set(`${name}-${hash}.${extension}`, content);
    return `${name}-${hash}.${extension}`;
  };
  const templates = named("library", "json", Buffer.from(JSON.stringify(library())));
  const licences = named("licences", "txt", Buffer.from(notices()));
  const entry = (extension) => [...out.keys()].find((name) => name.startsWith("main-") && name.endsWith(extension));
  const html = readFileSync(join(here, "src/index.html"), "utf8")
    .replaceAll("MAIN_JS", entry(".js"))
    .replaceAll("MAIN_CSS", entry(".css"))
    .replaceAll("LIBRARY", templates)
    .replaceAll("LICENCES", licences);
  out.set("index.html", Buffer.from(html));
  return out;
}

/** The licences of the bundled libraries. Each licence demands this notice. */
function notices() {
  const names = Object.keys(JSON.parse(readFileSync(join(here, "package.json"), "utf8")).dependencies);
  const more = ["style-mod", "crelt", "w3c-keyname", "@lezer/common", "@lezer/lr", "@preact/signals-core"];
  const folders = [...names, ...more].map((name) => [name, join(here, "node_modules", name)]);
  return folders
    .filter(([, folder]) => existsSync(folder))
    .map(([name, folder]) => {
      const licence = readdirSync(folder).find((file) => /^licen[sc]e/i.test(file));
      return `${name}\n\n${licence ? readFileSync(join(folder, licence), "utf8").trim() : ""}\n`;
    })
    .join("\n----\n\n");
}

async function main() {
  const out = new Map([...(await files()), ...(await fleet())]);
  for (const name of existsSync(dist) ? readdirSync(dist) : []) {
    if (name !== ".gitignore") rmSync(join(dist, name));
  }
  mkdirSync(dist, { recursive: true });
  let total = 0;
  for (const [name, content] of out) {
    const gzip = gzipSync(content, { level: 9 });
    const brotli = brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: content.length } });
    // The daemon leaves out what the operator serves.
    if (!name.startsWith("fleet")) total += gzip.length;
    writeFileSync(join(dist, name), content);
    writeFileSync(join(dist, `${name}.gz`), gzip);
    writeFileSync(join(dist, `${name}.br`), brotli);
    console.log(`${name.padEnd(28)} ${content.length} bytes, gzip ${gzip.length}, brotli ${brotli.length}`);
  }
  console.log(`together ${(total / 1024).toFixed(1)} KiB compressed by gzip; at most ${LIMIT / 1024} KiB`);
  if (total > LIMIT) throw new Error("the console is larger than it may be");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
