//! Names of addresses and ports: by a real DNS server, by the tables of the system, by the
//! namespaces of pods.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::pods::{CgroupDriver, ETH0, Pod};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Spread};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

/// dnsmasq on the loopback interface of a namespace. Dropping the value ends dnsmasq.
struct DnsServer {
    process: Child,
    directory: tempfile::TempDir,
}

impl DnsServer {
    /// Starts a DNS server that answers by `hosts`, which has the lines of /etc/hosts.
    fn start(topology: &Topology, hosts: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let table = directory.path().join("hosts");
        fs::write(&table, hosts)?;
        topology.monitor().run("ip", &["link", "set", "lo", "up"])?;
        let mut command = Command::new("dnsmasq");
        command
            .args([
                "--keep-in-foreground",
                "--no-resolv",
                "--no-hosts",
                "--local-ttl=300",
                "--user=root",
            ])
            .args([
                "--port=5353",
                "--listen-address=127.0.0.1",
                "--bind-interfaces",
                "--conf-file=/dev/null",
            ])
            .args(["--log-facility=-", "--log-queries", "--pid-file"])
            .arg(format!("--addn-hosts={}", table.display()))
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.path().join("log"))?);
        let process = topology
            .monitor()
            .enter(|| command.spawn())?
            .context("dnsmasq")?;
        let server = Self { process, directory };
        wait_for("dnsmasq answers", PATIENCE, || {
            ensure!(server.log()?.contains("2 names"), "{}", server.log()?);
            Ok(())
        })?;
        Ok(server)
    }

    fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.directory.path().join("log"))?)
    }

    fn questions(&self) -> Result<usize> {
        Ok(self
            .log()?
            .lines()
            .filter(|line| line.contains("query[PTR]"))
            .count())
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn names(daemon: &Daemon, question: &str) -> Value {
    daemon.json(&format!("/v1/names?{question}"))
}

#[test]
fn addresses_and_ports_have_the_names_of_the_sources_that_were_chosen() -> Result<()> {
    let topology = Topology::new()?;
    let dns = DnsServer::start(&topology, "192.0.2.7 db.example\n2001:db8::7 db6.example\n")?;
    let options = DaemonOptions::default()
        .argument("--names=dns,hosts,services")
        .argument("--names-dns=127.0.0.1:5353");
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let dns_name = |name: &str| json!([{ "name": name, "from": "dns" }]);
    let list = names(
        &daemon,
        "address=192.0.2.7&address=2001:db8::7&address=192.0.2.9",
    );
    let nameless = json!({ "address": "192.0.2.9", "names": [] });
    assert_eq!(
        list["addresses"][0]["names"],
        dns_name("db.example"),
        "{list}"
    );
    assert_eq!(
        list["addresses"][1]["names"],
        dns_name("db6.example"),
        "{list}"
    );
    assert_eq!(list["addresses"][2], nameless, "{list}");
    let asked = dns.questions()?;
    let list = names(
        &daemon,
        "address=192.0.2.7&address=::ffff:192.0.2.7&port=443&port=udp/53&port=1",
    );
    assert_eq!(list["kinds"], json!(["hosts", "services", "dns"]));
    assert_eq!(
        list["addresses"],
        json!([{ "address": "192.0.2.7", "names": dns_name("db.example") }])
    );
    assert_eq!(dns.questions()?, asked, "answers are kept");
    let port = |port: &str, name: &str| json!({ "port": port, "names": [{ "name": name, "from": "services" }] });
    assert_eq!(list["ports"][0], port("443", "https"));
    assert_eq!(list["ports"][1], port("udp/53", "domain"));
    let loopback = names(&daemon, "address=127.0.0.1");
    assert_eq!(
        loopback["addresses"][0]["names"][0],
        json!({ "name": "localhost", "from": "hosts" })
    );

    let output = daemon.client(&["names", "192.0.2.7", "443"])?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(
        text.contains("db.example") && text.contains("https"),
        "{text}"
    );
    Ok(())
}

#[test]
fn a_server_that_is_silent_holds_nothing_up() -> Result<()> {
    let topology = Topology::new()?;
    topology.monitor().run("ip", &["link", "set", "lo", "up"])?;
    let silent = topology
        .monitor()
        .enter(|| std::net::UdpSocket::bind("127.0.0.1:5353"))??;
    let options = DaemonOptions::default()
        .argument("--names=dns")
        .argument("--names-dns=127.0.0.1:5353");
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let addresses: Vec<String> = (1..=64)
        .map(|host| format!("address=192.0.2.{host}"))
        .collect();
    let list = names(&daemon, &addresses.join("&"));
    let all = list["addresses"].as_array().context("addresses")?;
    ensure!(
        all.len() == 64 && all.iter().all(|one| one["pending"] == true),
        "{list}"
    );
    drop(silent);
    Ok(())
}

#[test]
fn there_are_no_names_unless_somebody_chooses_them() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let list = names(&daemon, "address=127.0.0.1&port=443");
    assert_eq!(list["kinds"], json!([]));
    assert_eq!(
        (&list["addresses"][0]["names"], &list["ports"][0]["names"]),
        (&json!([]), &json!([]))
    );
    let refused = daemon.get("/v1/names?address=db").expect(400).json();
    ensure!(
        refused["detail"]
            .as_str()
            .is_some_and(|text| text.contains("address=db")),
        "{refused}"
    );
    let output = daemon.client(&["names", "127.0.0.1"])?;
    ensure!(
        String::from_utf8(output.stdout)?.contains("--names hosts"),
        "the hint"
    );
    Ok(())
}

#[test]
fn addresses_of_pods_have_the_names_of_pods() -> Result<()> {
    let topology = Topology::new()?;
    let options = DaemonOptions::default().argument("--names=pods");
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let pod = Pod::complete(CgroupDriver::Systemd, daemon.namespace())?;
    let inside = pod.namespace();
    inside.run("sysctl", &["-qw", "net.ipv6.conf.all.disable_ipv6=0"])?;
    inside.run("ip", &["addr", "add", "192.0.2.7/24", "dev", ETH0])?;
    inside.run(
        "ip",
        &["addr", "add", "2001:db8::7/64", "dev", ETH0, "nodad"],
    )?;
    let mut entry = pod.entry(&json!({}), &json!({}));
    entry["workload"] = json!({ "kind": "Deployment", "name": "web" });
    let services =
        json!([{ "namespace": "shop", "name": "web", "addresses": ["10.96.0.7", "fd00::7"] }]);
    let table = json!({ "pods": [entry], "services": services });
    let list = daemon.put("/v1/pods", &table).expect(200).json();
    assert_eq!(list["services"], 1, "{list}");
    let addresses = list["pods"][0]["addresses"]
        .as_array()
        .context("addresses")?;
    ensure!(
        addresses.contains(&"192.0.2.7".into()) && addresses.contains(&"2001:db8::7".into()),
        "{list}"
    );
    let expected =
        json!([{ "name": format!("shop/{} (Deployment web)", pod.name), "from": "pods" }]);
    for address in ["192.0.2.7", "2001:db8::7"] {
        let list = names(&daemon, &format!("address={address}"));
        assert_eq!(list["addresses"][0]["names"], expected, "{list}");
    }
    let service = json!([{ "name": "shop/web (Service)", "from": "pods" }]);
    for address in ["10.96.0.7", "fd00::7"] {
        let list = names(&daemon, &format!("address={address}"));
        assert_eq!(list["addresses"][0]["names"], service, "{list}");
    }
    // The table is on disk.
    let directories = daemon.kill()?;
    let daemon = Daemon::start_in(topology.monitor(), &options, directories)?;
    assert_eq!(
        names(&daemon, "address=10.96.0.7")["addresses"][0]["names"],
        service
    );
    let many = json!([{ "namespace": "shop", "name": "web", "addresses": ["x"] }]);
    daemon
        .put("/v1/pods", &json!({ "pods": [], "services": many }))
        .expect(422);
    Ok(())
}

const TALKS: &str = r#"#include <twinprobe.h>
struct talk {
    tp_ip source, destination;
};
TP_HASH(senders, tp_ip, __u64, 1024);
TP_HASH(talks, struct talk, __u64, 1024);
TP_PROBE(count, packet)
{
    tp_parse(packet);
    struct talk talk = { .source = tp_source(packet), .destination = tp_destination(packet) };
    __u64 *seen = tp_get(talks, &talk);
    if (seen)
        tp_add(seen, 1);
    seen = tp_get(senders, &talk.source);
    if (seen)
        tp_add(seen, 1);
    return TP_PASS;
}
char LICENSE[] SEC("license") = "GPL";
"#;

/// Returns the names in a document by the last byte of the sender's address.
fn named(document: &Value, metric: &str, sender: impl Fn(&Value) -> Value) -> BTreeMap<u8, Value> {
    let entries = document["ingress"][metric]["entries"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let named = entries.iter().filter(|entry| !entry["names"].is_null());
    let last = |address: &Value| address.as_str()?.rsplit('.').next()?.parse().ok();
    named
        .filter_map(|entry| Some((last(&sender(&entry["key"]))?, entry["names"].clone())))
        .collect()
}

/// A window has the names from its end, also in a later reading.
#[test]
fn documents_name_the_owners_of_addresses_in_keys() -> Result<()> {
    let topology = Topology::new()?;
    let options = DaemonOptions::default().argument("--kubernetes");
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let metric = |name: &str| json!({ "name": name, "map": name, "snapshot": true, "init": true });
    let ingress = json!({ "source": TALKS, "metrics": [metric("senders"), metric("talks")] });
    let window = json!({ "retain": 10, "collectors": ["c"] });
    let config = json!({ "interface": "mon0", "ingress": ingress, "window": window });
    daemon.put("/v1/probes/p", &config).expect(201);
    let traffic = GeneratorOptions {
        spread: Spread {
            addresses: 8,
            ..Spread::default()
        },
        ..Default::default()
    };
    let mut generator = Generator::new(topology.generator(), "gen0", traffic)?;
    let mut close = |expected: u64| -> Result<()> {
        generator.send(8)?;
        let closed = daemon
            .request("POST", "/v1/probes/p/windows", &[], b"")
            .expect(201)
            .json();
        assert_eq!(closed["window"]["seq"], expected, "{closed}");
        Ok(())
    };
    close(1)?;
    let before = daemon.json("/v1/probes/p/windows/1").to_string();
    ensure!(!before.contains("names"), "{before}");
    let pod = Pod::complete(CgroupDriver::Systemd, daemon.namespace())?;
    pod.namespace()
        .run("ip", &["addr", "add", "198.18.0.3/24", "dev", ETH0])?;
    let mut entry = pod.entry(&json!({}), &json!({}));
    entry["workload"] = json!({ "kind": "Deployment", "name": "web" });
    let services = json!([{ "namespace": "shop", "name": "db", "addresses": ["198.18.0.5"] }]);
    daemon
        .put(
            "/v1/pods",
            &json!({ "pods": [entry], "services": services }),
        )
        .expect(200);
    close(2)?;
    // The pod and the Service end, and another Service gets the address of the pod.
    daemon.put("/v1/pods", &json!({ "pods": [] })).expect(200);
    close(3)?;
    let services = json!([{ "namespace": "shop", "name": "new", "addresses": ["198.18.0.3"] }]);
    daemon
        .put("/v1/pods", &json!({ "pods": [], "services": services }))
        .expect(200);
    close(4)?;
    let web = json!({ "namespace": "shop", "pod": pod.name, "workload": "Deployment/web" });
    let service = |name: &str| json!({ "namespace": "shop", "service": name });
    // The first owners had their addresses before the daemon knew them.
    for seq in 1..=4 {
        let document = daemon.json(&format!("/v1/probes/p/windows/{seq}"));
        let third = if seq == 4 {
            service("new")
        } else {
            web.clone()
        };
        let keys = [(3, third), (5, service("db"))];
        let senders: BTreeMap<u8, Value> = keys
            .iter()
            .map(|(last, owner)| (*last, json!({ "key": owner })))
            .collect();
        assert_eq!(
            named(&document, "senders", Value::clone),
            senders,
            "{seq}: {document}"
        );
        let talks: BTreeMap<u8, Value> = keys
            .into_iter()
            .map(|(last, owner)| (last, json!({ "source": owner })))
            .collect();
        assert_eq!(
            named(&document, "talks", |key| key["source"].clone()),
            talks,
            "{seq}: {document}"
        );
        let xml = daemon
            .get(&format!("/v1/probes/p/windows/{seq}?format=xml"))
            .expect(200)
            .text()
            .to_owned();
        ensure!(
            xml.contains(r#"<names><name of="source" namespace="shop" service="db"/></names>"#),
            "{xml}"
        );
    }
    let shape = daemon.json("/v1/probes/p/windows/2/shape");
    ensure!(
        shape["metrics"]
            .as_array()
            .is_some_and(|all| all.iter().all(|metric| metric["names"] == true)),
        "{shape}"
    );
    // Several documents in one answer have the names as well.
    let lines = daemon
        .get("/v1/probes/p/windows?documents=true")
        .expect(200)
        .text()
        .to_owned();
    assert_eq!(lines.matches(r#""service":"new""#).count(), 2, "{lines}");
    Ok(())
}

const SENDERS: &str = r#"#include <twinprobe.h>
typedef tp_ip address TP_AS(ip);
TP_HASH(senders, address, __u64, 1024);
TP_PROBE(count, packet)
{
    tp_parse(packet);
    address sender = tp_source(packet);
    __u64 *seen = tp_get(senders, &sender);
    if (seen)
        tp_add(seen, 1);
    return TP_PASS;
}
char LICENSE[] SEC("license") = "GPL";
"#;

/// The command line shows names beside the addresses of a table, by one request for all of them.
#[test]
fn tables_show_names_beside_addresses() -> Result<()> {
    let topology = Topology::new()?;
    let dns = DnsServer::start(
        &topology,
        "198.18.0.0 db.example\n198.18.0.7 mail.example\n",
    )?;
    let audit = dns.directory.path().join("audit");
    let options = DaemonOptions::default()
        .argument("--names=dns")
        .argument("--names-dns=127.0.0.1:5353")
        .argument("--audit-log")
        .argument(&audit);
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let metric = json!({ "name": "senders", "map": "senders", "snapshot": true, "init": true });
    let ingress = json!({ "source": SENDERS, "metrics": [metric] });
    daemon
        .put(
            "/v1/probes/p",
            &json!({ "interface": "mon0", "ingress": ingress }),
        )
        .expect(201);
    let traffic = GeneratorOptions {
        spread: Spread {
            addresses: 16,
            ..Spread::default()
        },
        ..Default::default()
    };
    Generator::new(topology.generator(), "gen0", traffic)?.send(16)?;
    let run = |arguments: &str| -> Result<String> {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let output = daemon.client(&arguments)?;
        ensure!(
            output.status.success() && output.stderr.is_empty(),
            "{output:?}"
        );
        Ok(String::from_utf8(output.stdout)?)
    };
    let asked =
        || -> Result<usize> { Ok(fs::read_to_string(&audit)?.matches("GET /v1/names").count()) };
    let plain = run("metrics p --peek --sort key --top 10")?;
    ensure!(!plain.contains("example") && asked()? == 0, "{plain}");
    let few = run("metrics p --peek --names --sort key --top 8")?;
    ensure!(
        few.contains("198.18.0.0 db.example ") && !few.contains("mail.example"),
        "{few}"
    );
    wait_for("a request for names", PATIENCE, || {
        ensure!(asked()? == 1, "{}", asked()?);
        Ok(())
    })?;
    ensure!(
        !dns.log()?.contains("] 7.0.18.198."),
        "those that are not shown are not asked for"
    );
    let json: Value = serde_json::from_str(&run("metrics p --peek --names -o json")?)?;
    ensure!(!json.to_string().contains("example"), "{json}");
    let all = run("metrics p --names")?;
    ensure!(
        all.contains("198.18.0.0 db.example ") && all.contains("198.18.0.7 mail.example "),
        "{all}"
    );
    let series = run("series p senders --names --top 16")?;
    ensure!(series.contains("ADDRESS     NAME\n198.18.0."), "{series}");
    ensure!(
        series.contains("\n198.18.0.7  mail.example\n") && !series.contains("\n198.18.0.8  "),
        "{series}"
    );
    wait_for("three requests for names in all", PATIENCE, || {
        ensure!(asked()? == 3, "{}", asked()?);
        Ok(())
    })
}

#[test]
fn a_daemon_without_names_is_told_of() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let refused = daemon.client(&["top", "--names"])?;
    let words = String::from_utf8(refused.stderr)?;
    ensure!(
        !refused.status.success() && words.contains("start it with --names"),
        "{words}"
    );
    Ok(())
}
