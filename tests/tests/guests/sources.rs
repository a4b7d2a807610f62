//! Sources in their published form.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

use crate::scene::{at_xdp, source, variable};

/// Deploys a guest at XDP under its own name.
fn deploy(daemon: &Daemon, name: &str, metrics: &[&str]) -> Result<()> {
    let config = at_xdp(&json!({ "source": source(name)? }), metrics);
    daemon
        .put(&format!("/v1/probes/{name}"), &config)
        .expect(201);
    Ok(())
}

#[test]
fn sources_run_as_they_are() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let deploy = |name: &str, metrics: &[&str]| deploy(&daemon, name, metrics);
    deploy("vmlinux", &[".bss:ipv4"])?;
    deploy("headers", &[".bss:packets"])?;
    deploy("bare", &[".bss:ipv4"])?;
    deploy(
        "externs",
        &[".bss:version", ".bss:present", ".bss:missing", ".bss:hints"],
    )?;
    deploy("core-read", &[".bss:known", ".bss:unknown"])?;
    deploy("early", &["packets"])?;
    deploy("branches", &[".bss:packets"])?;
    deploy("trie-key", &[".bss:bytes"])?;
    deploy("typed-events", &[".bss:packets", "events"])?;
    deploy("limits", &["packets"])?;
    deploy("parts", &[".bss:bytes", "events"])?;
    deploy("module-types", &[".bss:packets"])?;
    deploy("submodule", &[".bss:bytes", "events"])?;
    deploy(
        "sections",
        &[
            ".data.counters:first",
            ".bss.counters:second",
            ".rodata.settings:step",
        ],
    )?;
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(10)?;
    let read = |probe: &str, name: &str| {
        variable(&daemon.json(&format!("/v1/probes/{probe}/metrics")), name)
    };
    assert_eq!(
        (read("vmlinux", "ipv4")?, read("headers", "packets")?),
        (10, 10)
    );
    assert_eq!(read("bare", "ipv4")?, 10);
    assert_eq!(
        (
            read("branches", "packets")?,
            read("typed-events", "packets")?
        ),
        (10, 10)
    );
    assert_eq!(
        (read("trie-key", "bytes")?, read("limits", "packets")?),
        (600, 10)
    );
    assert_eq!(
        (read("parts", "bytes")?, read("module-types", "packets")?),
        (480, 10)
    );
    assert_eq!(read("submodule", "bytes")?, 10 * (64 + 60));
    let early = daemon.json("/v1/probes/early/metrics");
    // A map without types is shown as it is in memory.
    ensure!(
        early["ingress"]["packets"]["entries"][0]["value"] == "0x0a00000000000000",
        "{early}"
    );
    assert_eq!(
        (
            read("sections", "first")?,
            read("sections", "second")?,
            read("sections", "step")?
        ),
        (60, 20, 2)
    );
    assert!(read("externs", "version")? > 0x0004_0000);
    assert_eq!(
        (read("externs", "missing")?, read("externs", "hints")?),
        (0, 0)
    );
    assert_eq!(
        (read("core-read", "known")?, read("core-read", "unknown")?),
        (1, 0)
    );
    Ok(())
}

/// Sources whose projects have headers, integers or sizes that the host has otherwise.
#[test]
fn sources_of_projects_run_as_they_are() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let deploy = |name: &str, metrics: &[&str]| deploy(&daemon, name, metrics);
    deploy("copies", &[".bss:packets"])?;
    deploy("later-headers", &[".bss:packets"])?;
    deploy("hashes", &[".bss:of_bytes", ".bss:of_words", ".bss:states"])?;
    deploy("integers", &[".bss:bytes", ".bss:largest"])?;
    deploy("library", &[".bss:packets", ".bss:largest"])?;
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(10)?;
    let read = |probe: &str, name: &str| {
        variable(&daemon.json(&format!("/v1/probes/{probe}/metrics")), name)
    };
    assert_eq!(
        (read("integers", "bytes")?, read("integers", "largest")?),
        (600, 0xffff)
    );
    assert_eq!(
        (read("library", "packets")?, read("library", "largest")?),
        (10, 0x7fff_ffff)
    );
    assert_eq!(
        (
            read("copies", "packets")?,
            read("later-headers", "packets")?
        ),
        (10, 10)
    );
    // The author of the hash function gives this result for this text.
    assert_eq!(
        (read("hashes", "of_bytes")?, read("hashes", "of_words")?),
        (0x1777_0551, 10)
    );
    assert_eq!(read("hashes", "states")?, 1 + 10);
    Ok(())
}

/// A pointer through which a format reads is not a number that the program shows.
#[test]
fn prints_of_texts_and_addresses_run_as_they_are() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let text = source("prints")?;
    let with = |text: &str| at_xdp(&json!({ "source": text }), &[".bss:packets"]);
    daemon.put("/v1/probes/prints", &with(&text)).expect(201);
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(10)?;
    assert_eq!(
        variable(&daemon.json("/v1/probes/prints/metrics"), "packets")?,
        10
    );
    for (shown, instead, line) in [
        ("from %pI4", "from %p", 32),
        ("%s: %pI4", "%lx: %pI4", 31),
        ("%pI4 to %pI4", "%pI4 to %px", 31),
    ] {
        let answer = daemon
            .post("/v1/validate", &with(&text.replace(shown, instead)))
            .expect(422)
            .json();
        let error = &answer["errors"][0];
        let told = error["message"]
            .as_str()
            .is_some_and(|message| message.contains("which shows it"));
        ensure!(told && error["line"] == line, "{instead}: {answer}");
    }
    Ok(())
}

/// Each twin has the programs of the tables: a window has the counts of all of them.
#[test]
fn programs_call_each_other_through_tables() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let names = ["packets", "ipv4", "ipv6", "tcp", "went_on", "rounds"];
    let mut config = at_xdp(
        &json!({ "source": source("tail-calls")? }),
        &names
            .map(|name| format!(".bss:{name}"))
            .each_ref()
            .map(String::as_str),
    );
    for metric in config["ingress"]["metrics"]
        .as_array_mut()
        .context("metrics")?
    {
        metric["snapshot"] = json!(true);
        metric["init"] = json!(true);
    }
    daemon.put("/v1/probes/calls", &config).expect(201);
    let program = &daemon.json("/v1/probes/calls")["programs"]["ingress"];
    assert_eq!(program["entry"], "see_packet", "{program}");
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    for sent in [10, 7, 3] {
        generator.send(sent)?;
        let window = daemon.json("/v1/probes/calls/metrics");
        let read = |name: &str| variable(&window, name);
        let all = names.map(read).into_iter().collect::<Result<Vec<u64>>>()?;
        // Two of 33 calls lead to the last program.
        assert_eq!(all, [sent, sent, 0, sent, sent, 31 * sent]);
    }
    Ok(())
}

/// Loops of iterators run as often as in C.
#[test]
fn loops_over_numbers_run_as_they_are() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let names = ["sum", "pairs", "none", "below", "stopped", "bytes"];
    let metrics = names.map(|name| format!(".bss:{name}"));
    let config = at_xdp(
        &json!({ "source": source("iterators")? }),
        &metrics.each_ref().map(String::as_str),
    );
    daemon.put("/v1/probes/loops", &config).expect(201);
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(3)?;
    let document = daemon.json("/v1/probes/loops/metrics");
    let read = |name: &str| variable(&document, name);
    let all = names.map(read).into_iter().collect::<Result<Vec<u64>>>()?;
    // The table grows with each of the three packets, which have 60 bytes.
    assert_eq!(all, [120 * (1 + 2 + 3), 36 * 3, 0, 10 * 3, 7 * 3, 60 * 3]);
    Ok(())
}

/// clang also finds headers beside a source for `#include <...>`, after those of the system.
#[test]
fn local_headers_in_angle_brackets_are_found() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let files = json!({
        "bpf/ctx/context.h": "#define context __sk_buff\n#define GO_ON 0\n",
        "lib/counters.h": "__u64 bytes;\nstatic void count(__u64 length) { __sync_fetch_and_add(&bytes, length); }\n",
        // The system's own header comes first.
        "bpf/bpf_helpers.h": "#error another one\n",
    });
    let code = json!({ "source": source("angled")?, "files": files, "hook": "tc" });
    daemon
        .put("/v1/probes/angled", &at_xdp(&code, &[".bss:bytes"]))
        .expect(201);
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(10)?;
    assert_eq!(
        variable(&daemon.json("/v1/probes/angled/metrics"), "bytes")?,
        600
    );
    Ok(())
}

/// Projects keep headers beside the folders of their programs, and types of the kernel in folders.
#[test]
fn headers_beside_the_folder_are_sent_below_it() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let header = "#include \"../bpf/vmlinux.h\"\n__u64 bytes;\n\
        static void count(__u64 length) { __sync_fetch_and_add(&bytes, length); }\n";
    let code = json!({ "source": source("shared")?, "files": { "common/counters.h": header } });
    daemon
        .put("/v1/probes/shared", &at_xdp(&code, &[".bss:bytes"]))
        .expect(201);
    let code = json!({ "source": source("tcx")?, "hook": "tc" });
    daemon
        .put(
            "/v1/probes/tcx",
            &at_xdp(&code, &[".bss:packets", "samples"]),
        )
        .expect(201);
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(10)?;
    assert_eq!(
        variable(&daemon.json("/v1/probes/shared/metrics"), "bytes")?,
        600
    );
    assert_eq!(
        variable(&daemon.json("/v1/probes/tcx/metrics"), "packets")?,
        10
    );

    // A project's own file of types beside the kernel's API takes the place of all types.
    let types = "struct project_counts {\n\t__u64 packets;\n};\n";
    let own = |files: Value| {
        at_xdp(
            &json!({ "source": source("own-types").unwrap_or_default(), "files": files }),
            &[],
        )
    };
    daemon
        .post(
            "/v1/validate",
            &own(json!({ "bpf/vmlinux.h": format!("#include <linux/types.h>\n{types}") })),
        )
        .expect(200);
    let answer = daemon
        .post("/v1/validate", &own(json!({})))
        .expect(422)
        .json();
    ensure!(
        answer
            .to_string()
            .contains("copy it beside the source as `bpf/vmlinux.h`"),
        "{answer}"
    );

    let missing = json!({ "source": source("shared")? });
    let answer = daemon
        .post("/v1/validate", &at_xdp(&missing, &[]))
        .expect(422)
        .json();
    let error = &answer["errors"][0];
    let words = "copy it to `common/counters.h` below the source's folder";
    let fits = error["line"] == 4
        && error["hint"]
            .as_str()
            .is_some_and(|hint| hint.contains(words));
    ensure!(fits, "{answer}");
    Ok(())
}

/// In a source for BCC, headers of the kernel include the same headers as in the kernel.
#[test]
fn headers_of_the_kernel_bring_those_of_packets() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let code = json!({ "source": source("sock")?, "dialect": "bcc", "hook": "tc" });
    daemon
        .put("/v1/probes/sock", &at_xdp(&code, &["kinds"]))
        .expect(201);
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(10)?;
    let document = daemon.json("/v1/probes/sock/metrics");
    let first = &document["ingress"]["kinds"]["entries"][0]["value"];
    ensure!(*first == 10, "{document}");
    Ok(())
}

/// A refusal that is about code of a file beside the source names the file and the line in it.
#[test]
fn refusals_of_code_in_local_headers_name_the_header_and_its_line() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let text = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n#include \"lib/first.h\"\n\
        SEC(\"xdp\") int see(struct xdp_md *ctx)\n{\n\treturn look((void *)(long)ctx->data, (void *)(long)ctx->data_end);\n}\n\
        char LICENSE[] SEC(\"license\") = \"GPL\";\n";
    for inline in ["__always_inline", "__attribute__((noinline))"] {
        let with = |condition: &str, body: &str| {
            let header = format!(
                "\n/* The third line is next. */\nstatic {inline} int look(char *data, char *end)\n{{\n\
                 \tif ({condition})\n\t\t{body};\n\treturn XDP_PASS;\n}}\n"
            );
            at_xdp(
                &json!({ "source": text, "files": { "lib/first.h": header } }),
                &[],
            )
        };
        let fine = daemon.post(
            "/v1/validate",
            &with("data + 1 <= end", "return data[0] ? XDP_PASS : XDP_DROP"),
        );
        ensure!(fine.status == 200, "{}", fine.text());
        for (stage, condition, body) in [
            // The kernel's verifier: there is no check.
            ("load", "end", "return data[0] ? XDP_PASS : XDP_DROP"),
            ("admission", "data + 1 <= end", "data[0] = 1"),
        ] {
            let answer = daemon
                .post("/v1/validate", &with(condition, body))
                .expect(422)
                .json();
            let error = &answer["errors"][0];
            let fits = error["stage"] == stage
                && error["field"] == "ingress.files.lib/first.h"
                && error["line"] == 6;
            ensure!(fits, "{inline}: {answer}");
        }
    }
    Ok(())
}

#[test]
fn the_programs_of_a_file_are_chosen_by_hook_and_entry() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let text = source("both-directions")?;
    let direction = |metric: &str| json!({ "source": text, "metrics": [{ "name": metric, "map": format!(".bss:{metric}") }] });
    let mut config =
        json!({ "interface": "mon0", "ingress": direction("came"), "egress": direction("went") });
    config["ingress"]["hook"] = json!("tc");
    daemon.put("/v1/probes/both", &config).expect(201);
    let programs = &daemon.json("/v1/probes/both")["programs"];
    let entries = ["ingress", "egress"].map(|direction| programs[direction]["entry"].clone());
    assert_eq!(entries, ["in", "out"]);
    for direction in ["ingress", "egress"] {
        assert_eq!(programs[direction]["left_out"], json!(["early", "trace"]));
    }
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(10)?;
    assert_eq!(
        variable(&daemon.json("/v1/probes/both/metrics"), "came")?,
        10
    );

    let refused = |code: Value, words: &str| -> Result<()> {
        let answer = daemon.post("/v1/validate", &at_xdp(&code, &[]));
        ensure!(
            answer.status == 422 && answer.text().contains(words),
            "{words}: {}",
            answer.text()
        );
        Ok(())
    };
    let tutorial = source("tutorial")?;
    refused(
        json!({ "source": tutorial }),
        "2 entry points: xdp_drop_func, xdp_pass_func; choose one by the field entry",
    )?;
    refused(
        json!({ "source": tutorial, "entry": "nothing" }),
        "entry is nothing, and the programs are xdp_pass_func, xdp_drop_func",
    )?;
    refused(
        json!({ "source": tutorial, "entry": "nothing" }),
        "ingress.entry",
    )?;
    refused(
        json!({ "source": text, "entry": "out" }),
        "out is in SEC(\\\"tc/egress\\\")",
    )?;
    refused(json!({ "source": text, "entry": "trace" }), "kprobe")?;
    refused(
        json!({ "source": source("refused-devmap")? }),
        "another program redirects",
    )?;
    refused(json!({ "source": source("refused-devmap")? }), "\"line\":8")?;
    refused(
        json!({ "source": source("refused-kfunc")? }),
        "bpf_xdp_metadata_rx_hash",
    )?;
    refused(
        json!({ "source": source("refused-declared")? }),
        "struct flow_key is only declared",
    )?;
    refused(
        json!({ "source": source("refused-helper")? }),
        "the helper function bpf_snprintf is not allowed",
    )?;
    let chosen = at_xdp(
        &json!({ "source": tutorial, "entry": "xdp_pass_func" }),
        &["stats"],
    );
    daemon.put("/v1/probes/tutorial", &chosen).expect(201);
    assert_eq!(
        daemon.json("/v1/probes/tutorial")["programs"]["ingress"]["left_out"],
        json!(["xdp_drop_func"])
    );
    Ok(())
}

/// A section may have a further program that can't run here. The daemon loads nothing that only
/// this program uses.
#[test]
fn a_section_may_have_a_program_that_can_not_run_here() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let text = source("two-in-section")?;
    let of =
        |entry: &str, metrics: &[&str]| at_xdp(&json!({ "source": text, "entry": entry }), metrics);
    daemon
        .put("/v1/probes/two", &of("look", &["seen"]))
        .expect(201);
    assert_eq!(
        daemon.json("/v1/probes/two")["programs"]["ingress"]["left_out"],
        json!(["forward"])
    );
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(10)?;
    let document = daemon.json("/v1/probes/two/metrics");
    let cpus = document["ingress"]["seen"]["entries"][1]["value"]
        .as_array()
        .context("a value of each CPU")?;
    assert_eq!(
        cpus.iter().filter_map(Value::as_u64).sum::<u64>(),
        10,
        "{document}"
    );

    for (entry, metrics, words) in [
        ("forward", &["seen"][..], "bpf_xdp_metadata_rx_hash"),
        ("look", &["seen", "tx_ports"], "map type 14"),
    ] {
        let answer = daemon.post("/v1/validate", &of(entry, metrics));
        ensure!(
            answer.status == 422 && answer.text().contains(words),
            "{words}: {}",
            answer.text()
        );
    }
    Ok(())
}

#[test]
fn variables_begin_with_the_values_of_the_configuration() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let text = source("constant")?;
    let with = |variables: Value| {
        at_xdp(
            &json!({ "source": text, "variables": variables }),
            &[".bss:packets", ".data:limits"],
        )
    };
    let refused = |daemon: &Daemon, variables: Value, field: &str, words: &str| -> Result<()> {
        let answer = daemon
            .put("/v1/probes/p", &with(variables))
            .expect(422)
            .json();
        let error = &answer["errors"][0];
        let fits = error["field"] == format!("ingress.variables{field}")
            && error["message"]
                .as_str()
                .is_some_and(|text| text.contains(words));
        ensure!(fits, "{answer}");
        Ok(())
    };
    refused(
        &daemon,
        json!({ "largest": 1 }),
        ".largest",
        "there is no variable largest; there are",
    )?;
    refused(
        &daemon,
        json!({ "smallest": -1 }),
        ".smallest",
        "-1 does not fit; a number from 0 to 4294967295",
    )?;
    refused(
        &daemon,
        json!({ "mode": "DIM" }),
        ".mode",
        "known are OFF, ON",
    )?;
    refused(
        &daemon,
        json!({ "limits": { "middle": 1 } }),
        ".limits",
        "there is no field middle; known are low, high",
    )?;
    refused(&daemon, json!({ "a b": 1 }), "", "not a C identifier")?;
    daemon.get("/v1/probes/p").expect(404);

    let values = json!({ "smallest": 40, "mode": "ON", "limits": { "high": 5 }, "label": "lab" });
    daemon
        .put("/v1/probes/p", &with(values.clone()))
        .expect(201);
    assert_eq!(
        daemon.json("/v1/probes/p")["config"]["ingress"]["variables"],
        values
    );
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let mut expect = |daemon: &Daemon, sent: u64, counted: u64| -> Result<()> {
        generator.send(sent)?;
        let document = daemon.json("/v1/probes/p/metrics");
        let limits = document.to_string();
        ensure!(variable(&document, "packets")? == counted, "{document}");
        ensure!(
            limits.contains("\"low\":1") && limits.contains("\"high\":5"),
            "{document}"
        );
        Ok(())
    };
    expect(&daemon, 10, 50)?;
    // A restart continues, and deploys anew where the pins are lost.
    daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
    expect(&daemon, 10, 100)?;
    let directories = daemon.kill()?;
    std::fs::remove_dir_all(directories.bpffs().join("probes"))?;
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    expect(&daemon, 10, 50)?;
    // No packet has this length.
    let mut longer = values;
    longer["smallest"] = json!(60_000);
    daemon.put("/v1/probes/p", &with(longer)).expect(200);
    expect(&daemon, 10, 50)
}
