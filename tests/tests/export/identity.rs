//! Different keys look different in every format and in tables, with any bytes from packets and
//! programs.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{Daemon, Topology};

const SOURCE: &str = r#"#include <twinprobe.h>

struct name { char text[4]; __u8 flag; __u32 number; };
TP_HASH(names, struct name, __u64, 64);

#define PUT(...) do {						\
        const __u8 bytes[12] = { __VA_ARGS__ };			\
        struct name name;						\
        __builtin_memcpy(&name, bytes, 12);				\
        __u64 *seen = tp_get(names, &name);				\
        if (seen)							\
            tp_add(seen, 1);						\
    } while (0)

TP_PROBE(count, packet)
{
    PUT('a');
    PUT('a', 0, 'x');
    PUT('a', 0, 'y');
    PUT('a', 0xff);
    PUT('a', 0xfe);
    PUT(0xef, 0xbf, 0xbd);
    PUT('a', ' ');
    PUT('a', 1);
    PUT('a', '\r');
    PUT('a', '\n');
    PUT('a', 0, 0, 0, 0, 1);
    PUT('a', 0, 0, 0, 0, 0, 0, 2);
    return TP_PASS;
}
char LICENSE[] SEC("license") = "GPL";
"#;
const KEYS: usize = 12;

#[test]
fn no_entry_looks_like_another_and_none_is_left_out() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let metrics = json!([{ "name": "names_total", "map": "names", "snapshot": true }]);
    let config =
        json!({ "interface": "mon0", "ingress": { "source": SOURCE, "metrics": metrics } });
    daemon.put("/v1/probes/p", &config).expect(201);
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(5)?;
    let document: Value = daemon.json("/v1/probes/p/metrics");
    let entries = document["ingress"]["names_total"]["entries"]
        .as_array()
        .expect("entries")
        .clone();
    let keys: BTreeSet<String> = entries
        .iter()
        .map(|entry| entry["key"].to_string())
        .collect();
    assert_eq!((entries.len(), keys.len()), (KEYS, KEYS), "{document}");
    let text = |text: &str| json!({ "text": text, "flag": 0, "number": 0 }).to_string();
    for key in [
        "a", "a\\x00x", "a\\x00y", "a\\xff", "a\\xfe", "\u{fffd}", "a ", "a\n",
    ] {
        assert!(keys.contains(&text(key)), "{key}: {keys:#?}");
    }
    assert!(
        keys.iter()
            .any(|key| key.contains(r#""padding":"0x010000""#)),
        "{keys:#?}"
    );
    for (accept, begin) in [
        ("application/xml", "<key>"),
        ("application/openmetrics-text", "names_total{"),
        ("text/plain", "names_total{"),
    ] {
        let answer = daemon
            .request("GET", "/v1/probes/p/metrics", &[("Accept", accept)], b"")
            .expect(200);
        let shown: BTreeSet<&str> = answer.text().split(begin).skip(1).collect();
        assert_eq!(shown.len(), KEYS, "{accept}: {}", answer.text());
        if begin != "<key>" {
            assert!(
                answer.text().contains("twinprobe_export_skipped_total 0\n"),
                "{}",
                answer.text()
            );
        }
    }
    let output = daemon.client(&["metrics", "p"])?;
    let table = String::from_utf8(output.stdout)?;
    let is_row = |line: &&str| line.split_whitespace().any(|cell| cell == "5");
    let rows: BTreeSet<&str> = table.lines().filter(is_row).collect();
    assert_eq!(rows.len(), KEYS, "{table}");
    Ok(())
}
