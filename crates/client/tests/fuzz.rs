//! The body of the fuzz target `config` on mutated configurations.

use std::time::Duration;

use twinprobe_fuzz::{config, runner};

const EVERYTHING: &str = r#"{"name":"flows","interfaces":["eth0","veth*"],"wait_for_interface":true,"netns":"/run/netns/blue",
"priority":-10.0,"position":"first","on_replace":"carry","format":"xml","ingress":{"hook":"xdp","mode":"native","verdict":
"enforce","source":"int x;","defines":{"N":"1024"},"metrics":[{"name":"flows","map":"flows","help":"Flows","snapshot":true,
"sum_entries":18446744073709551615,"merge":{"packets":"sum","last_seen":"max"}},{"name":"scratch","map":"scratch","init":
true,"export":false}]},"egress":{"hook":"tc","source":"x","metrics":[{"name":"e","map":"r","type":"struct e"}]},"window":
{"interval":"10s","align":true,"retain":360,"retain_bytes":1073741824,"collectors":["archive"]}}"#;
const YAML: &str = "name: flows\ninterface: eth0\npriority: 2\ningress: &in\n  hook: tc\n  source: |\n    int x;\n    \
    int y;\n  defines: {N: \"1\", M: 'x'}\n  metrics:\n  - name: a\n    map: .bss:a\n    snapshot: true\n    merge: last\n\
    egress: *in\nwindow:\n  interval: 10s\n  retain: 3\n";
/// Each line is ten times as long as the previous one.
const ALIASES: &str = "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,\
    *b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,\
    *e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g,*g]\n";

#[test]
fn configurations() {
    let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    let seeds = [
        EVERYTHING,
        YAML,
        ALIASES,
        "--- {}\n--- {}\n",
        "interfaces: [",
        &deep,
    ]
    .map(|text| text.as_bytes().to_vec());
    runner::run("config", Duration::from_secs(2), &seeds, config::config);
    runner::assert_little_memory();
}
