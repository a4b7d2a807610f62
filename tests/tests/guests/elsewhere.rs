//! Sources that were written for other build environments, and definitions outside of the source.

use anyhow::{Result, ensure};
use serde_json::json;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{Daemon, Topology};

use crate::scene::{at_xdp, source, variable};

/// Sources of other build environments: the kernel's own, newer compilers and headers, iproute2's
/// loader.
#[test]
fn names_that_a_build_elsewhere_has_are_there() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let inside = json!({ "source": source("inside")? });
    let metrics = [".bss:packets", ".bss:ports", ".bss:fragments"];
    daemon
        .put("/v1/probes/inside", &at_xdp(&inside, &metrics))
        .expect(201);
    let types = "struct net_device {\n\tint ifindex;\n} __attribute__((preserve_access_index));\n";
    let newer = json!({ "source": source("newer")?, "files": { "bpf/vmlinux.h": types } });
    daemon
        .put(
            "/v1/probes/newer",
            &at_xdp(
                &newer,
                &[".bss:packets", ".bss:short_packets", ".bss:turns"],
            ),
        )
        .expect(201);
    let iproute = json!({ "source": source("iproute")?, "hook": "tc" });
    daemon
        .put(
            "/v1/probes/iproute",
            &at_xdp(&iproute, &[".bss:ipv4", ".bss:others", "networks"]),
        )
        .expect(201);
    let beside = json!({ "source": source("beside-types")?, "hook": "tc" });
    daemon
        .put(
            "/v1/probes/beside-types",
            &at_xdp(&beside, &[".bss:ipv4", ".bss:others", "lengths"]),
        )
        .expect(201);
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(10)?;
    let read = |probe: &str, name: &str| {
        variable(&daemon.json(&format!("/v1/probes/{probe}/metrics")), name)
    };
    assert_eq!(
        (
            read("inside", "packets")?,
            read("inside", "ports")?,
            read("inside", "fragments")?
        ),
        (10, 10, 0)
    );
    assert_eq!(
        (read("newer", "packets")?, read("newer", "short_packets")?),
        (10, 10)
    );
    assert_eq!(read("newer", "turns")?, 10 * (2 + 3 + 4 + 3));
    assert_eq!(
        (read("iproute", "ipv4")?, read("iproute", "others")?),
        (10, 0)
    );
    assert_eq!(
        (
            read("beside-types", "ipv4")?,
            read("beside-types", "others")?
        ),
        (10, 0)
    );
    Ok(())
}

/// A refusal of a map that a file beside the source defines names the file and the line in it.
#[test]
fn refusals_of_maps_in_local_headers_name_the_header_and_its_line() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let map = "\nstruct {\n\t__uint(type, BPF_MAP_TYPE_QUEUE);\n\n\t__type(value, __u64);\n} seen SEC(\".maps\");\n";
    let text = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n#include \"maps.h\"\n\
        SEC(\"xdp\") int see(struct xdp_md *ctx) { __u64 next = 0; return bpf_map_peek_elem(&seen, &next) ? 1 : 2; }\n\
        char LICENSE[] SEC(\"license\") = \"GPL\";\n";
    let config = at_xdp(&json!({ "source": text, "files": { "maps.h": map } }), &[]);
    let answer = daemon.post("/v1/validate", &config).expect(422).json();
    let error = &answer["errors"][0];
    ensure!(
        error["field"] == "ingress.files.maps.h" && error["line"] == 6,
        "{answer}"
    );
    Ok(())
}

/// Some loaders take a program from the section of functions. Here the refusal has the line of its
/// first statement.
#[test]
fn a_program_without_section_is_named() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let text = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
        int seen(int length)\n{\n\treturn length > 60;\n}\n\
        int count(struct xdp_md *ctx)\n{\n\treturn seen(ctx->data_end - ctx->data) ? XDP_PASS : XDP_DROP;\n}\n\
        char LICENSE[] SEC(\"license\") = \"GPL\";\n";
    let config = at_xdp(&json!({ "source": text, "dialect": "libbpf" }), &[]);
    let answer = daemon.post("/v1/validate", &config).expect(422).json();
    let error = &answer["errors"][0];
    let told = error["message"]
        .as_str()
        .is_some_and(|message| message.starts_with("count is in no section"));
    ensure!(
        told && error["field"] == "ingress.source" && error["line"] == 9,
        "{answer}"
    );
    Ok(())
}
