//! Nodes, a stream and a broker. Each is in a namespace of its own, with cables between them, and
//! all connections are encrypted.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use twinprobe_tests::cable::Cable;
use twinprobe_tests::certificates::Certificates;
use twinprobe_tests::netns::unique_prefix;
use twinprobe_tests::servers::nats::NatsServer;
use twinprobe_tests::{Directories, Namespace, Tmpfs, Topology};

use crate::push::server;
use crate::scene::{COLLECTOR, Node, Stream, configuration, python};

pub const NODES: [&str; 3] = ["node-0", "gw/1.example", "node-2"];
/// The node whose probe `few` keeps few windows, so that the stream misses some.
pub const FEW: usize = 2;
/// The size of the disks of daemons and of the broker in bytes.
const DISK: u64 = 256 << 20;
/// The number of the cable to the broker.
const BROKER: u8 = 9;
const PORT: u16 = 9470;

/// The other members of the values that the probe `p` counts: one layout after the other.
pub const LAYOUTS: [&str; 4] = [
    "",
    "__u64 others;",
    "__u32 renamed; __u32 small;",
    "__u64 others; __u64 more[2];",
];

/// Makes the stream of JetStream, which forgets ids soon, or prints all of its messages.
const CLIENT: &str = "import asyncio, json, ssl, sys, nats
def number(value):
    if isinstance(value, list):
        return sum(map(number, value))
    return value['packets'] if isinstance(value, dict) else value
def count(document, metric):
    entries = document.get('ingress', {}).get(metric, {}).get('entries', [])
    return sum(number(entry['value']) for entry in entries)
def members(document):
    entries = document.get('ingress', {}).get('packets', {}).get('entries', [])
    return ' '.join(entries[0]['value']) if entries and isinstance(entries[0]['value'], dict) else ''
async def main():
    tls = ssl.create_default_context(cafile=sys.argv[2])
    tls.load_cert_chain(sys.argv[3], sys.argv[4])
    nc = await nats.connect(sys.argv[1], tls=tls)
    js, found = nc.jetstream(), []
    if sys.argv[5] == 'make':
        await js.add_stream(name='WINDOWS', subjects=['twinprobe.>'], duplicate_window=0.2)
    else:
        sub = await js.subscribe('twinprobe.>', ordered_consumer=True)
        total = (await js.stream_info('WINDOWS')).state.messages
        while len(found) < total:
            message = await sub.next_msg(timeout=30)
            document = json.loads(message.data)
            gap, window = document.get('gap'), document.get('window')
            first, last = (gap['first'], gap['last']) if gap else (window['seq'], window['seq'])
            found.append({
                'subject': message.subject, 'first': first, 'last': last, 'gap': gap['windows'] if gap else 0,
                'packets': count(document, 'packets'), 'total': count(document, 'total'),
                'shape': message.headers.get('Twinprobe-Shape', ''), 'members': members(document),
            })
    await nc.close()
    print(json.dumps(found))
asyncio.run(main())";

/// A message of the broker.
#[derive(Debug, Deserialize)]
pub struct Message {
    pub subject: String,
    /// The number of the window. For a gap: the numbers of the first and of the last lost window.
    pub first: u64,
    pub last: u64,
    /// The windows of a gap; 0 for a window.
    pub gap: u64,
    /// The packets of the window.
    pub packets: u64,
    /// The packets since the probe began.
    pub total: u64,
    /// The digest of the shape.
    pub shape: String,
    /// The names of the members of its values.
    pub members: String,
}

pub struct Site {
    pub nodes: Vec<Node>,
    /// The cables to the nodes.
    pub cables: Vec<Cable>,
    pub broker: NatsServer,
    pub broker_disk: Tmpfs,
    pub to_broker: Cable,
    pub of_daemons: Certificates,
    pub of_broker: Certificates,
    pub config: PathBuf,
    _directory: TempDir,
}

impl Site {
    pub fn new() -> Result<Self> {
        let (directory, prefix) = (tempfile::tempdir()?, unique_prefix());
        let place = |role: &str| Namespace::create(&format!("{prefix}-{role}"));
        let center = place("stream")?;
        let topologies = NODES
            .iter()
            .map(|_| Topology::new())
            .collect::<Result<Vec<_>>>()?;
        let lay =
            |(number, topology): (u8, &Topology)| Cable::lay(&center, topology.monitor(), number);
        let cables = (1..)
            .zip(&topologies)
            .map(lay)
            .collect::<Result<Vec<_>>>()?;
        let addresses = cables.iter().map(Cable::address).collect();
        let of_daemons = Certificates::of(directory.path().join("daemons"), addresses)?;
        let roles = directory.path().join("roles");
        fs::write(&roles, "ip:127.0.0.1 collector\n")?;
        let mut nodes = Vec::new();
        for ((topology, cable), name) in topologies.into_iter().zip(&cables).zip(NODES) {
            let listen = format!("{}:{PORT}", cable.address());
            let [cert, key, ca] =
                ["server", "server-key", "authority"].map(|name| text(&of_daemons, name));
            let roles = roles.display().to_string();
            let more = [
                ["--listen", &listen],
                ["--tls-cert", &cert],
                ["--tls-key", &key],
                ["--client-ca", &ca],
                ["--client-roles", &roles],
            ];
            let directories = Directories::with_state_in_memory(DISK)?;
            let node = Node::in_place(topology, directories, name, more.as_flattened())?;
            node.daemon().put("/v1/probes/p", &layout(0)).expect(201);
            nodes.push(node);
        }
        nodes[FEW]
            .daemon()
            .put("/v1/probes/few", &few())
            .expect(201);
        let to_broker = Cable::lay(&center, &place("broker")?, BROKER)?;
        let of_broker =
            Certificates::of(directory.path().join("broker"), vec![to_broker.address()])?;
        let store = directory.path().join("store");
        let broker_disk = Tmpfs::mount(&store, DISK)?;
        let secured = || NatsServer::secured(&store, &to_broker.address(), &of_broker);
        let broker = to_broker.far().enter(secured)??;
        let sources: Vec<&Node> = nodes.iter().collect();
        let config = configured(
            &directory,
            &sources,
            &cables,
            &broker,
            [&of_daemons, &of_broker],
        )?;
        let site = Self {
            nodes,
            cables,
            broker,
            broker_disk,
            to_broker,
            of_daemons,
            of_broker,
            config,
            _directory: directory,
        };
        site.ask_broker("make")?;
        Ok(site)
    }

    /// Starts the stream at the same place.
    pub fn stream(&self) -> Result<Stream> {
        self.at_center(|| Stream::start(&self.config))
    }

    /// Sends all remaining windows, by a separate stream.
    pub fn send_all(&self) -> Result<String> {
        self.at_center(|| server::send_all(&self.config))
    }

    /// Calls a function at the place of the stream.
    pub fn at_center<T: Send>(&self, call: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        self.to_broker.near().enter(call)?
    }

    /// Starts the broker after its end.
    pub fn start_broker(&mut self) -> Result<()> {
        let Self {
            broker, to_broker, ..
        } = self;
        to_broker.far().enter(|| broker.start())?
    }

    pub fn messages(&self) -> Result<Vec<Message>> {
        Ok(serde_json::from_value(self.ask_broker("read")?)?)
    }

    fn ask_broker(&self, what: &str) -> Result<Value> {
        let [ca, cert, key] =
            ["authority", "client", "client-key"].map(|name| text(&self.of_broker, name));
        self.at_center(|| python(CLIENT, &[&self.broker.url(), &ca, &cert, &key, what]))
    }
}

fn text(files: &Certificates, name: &str) -> String {
    files.path(name).display().to_string()
}

/// Writes the configuration of the stream.
fn configured(
    directory: &TempDir,
    nodes: &[&Node],
    cables: &[Cable],
    broker: &NatsServer,
    [of_daemons, of_broker]: [&Certificates; 2],
) -> Result<PathBuf> {
    let servers = cables
        .iter()
        .map(|cable| format!("https://{}:{PORT}", cable.address()));
    let servers: Vec<String> = servers.collect();
    let access = |files: &Certificates| {
        let [ca, cert, key] = ["authority", "client", "client-key"].map(|name| text(files, name));
        json!({ "ca": ca, "cert": cert, "key": key })
    };
    let mut from = access(of_daemons);
    from["servers"] = json!(servers);
    let mut to = access(of_broker);
    to["servers"] = json!([broker.url()]);
    (to["stream"], to["create"]) = (json!("WINDOWS"), json!(false));
    let more = json!({ "from": from, "listen": "127.0.0.1:0" });
    configuration(directory.path(), nodes, &json!([{ "nats": to }]), &more)
}

/// Returns the configuration of the probe `p` with the layout of this number in [`LAYOUTS`].
pub fn layout(number: usize) -> Value {
    let others = LAYOUTS[number % LAYOUTS.len()];
    let source = format!(
        "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
         struct counts {{ __u64 packets; {others} }};\n\
         struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); \
         __type(value, struct counts); }} packets SEC(\".maps\");\n\
         SEC(\"xdp\") int count(struct xdp_md *ctx) {{ __u32 key = 0;\n\
         struct counts *counts = bpf_map_lookup_elem(&packets, &key);\n\
         if (counts) __sync_fetch_and_add(&counts->packets, 1); return XDP_PASS; }}\n\
         char LICENSE[] SEC(\"license\") = \"GPL\";\n"
    );
    let metric = json!({ "name": "packets", "map": "packets", "snapshot": true, "init": true });
    json!({ "interface": "mon0", "window": window(10_000), "ingress": { "source": source, "metrics": [metric] } })
}

fn window(retain: u64) -> Value {
    json!({ "interval": "200ms", "retain": retain, "collectors": [COLLECTOR] })
}

/// A probe that keeps few windows, and counts all packets so far.
fn few() -> Value {
    let mut config = twinprobe_tests::windows::config(&window(3), &[]);
    config["ingress"]["verdict"] = json!("observe");
    config
}
