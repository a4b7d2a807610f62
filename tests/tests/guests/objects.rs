//! Objects of plain compilers.

use anyhow::{Result, ensure};
use serde_json::json;
use twinprobe_tests::{Daemon, Topology};

use crate::scene::{at_xdp, clangs, compile, directory, of_object, stripped};

/// The programs that need no header of ours.
const PLAIN: [&str; 6] = ["legacy", "sections", "both-directions", "tutorial", "tail-calls", "iterators"];

#[test]
fn objects_of_each_compiler_are_valid_stripped_or_not() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let clangs = clangs();
    ensure!(!clangs.is_empty(), "no clang is installed");
    for clang in &clangs {
        for name in PLAIN {
            let path = directory().join(format!("{name}.bpf.c"));
            for more in [&[][..], &["-mcpu=v3"], &["-fno-addrsig"]] {
                let elf = compile(clang, &path, more)?;
                for elf in [stripped(&elf)?, elf] {
                    let mut code = of_object(&elf);
                    if name == "tutorial" {
                        code["entry"] = json!("xdp_pass_func");
                    }
                    let answer = daemon.post("/v1/validate", &at_xdp(&code, &[]));
                    ensure!(answer.status == 200, "{clang} {more:?}, {name}: {}", answer.text());
                }
            }
        }
    }
    Ok(())
}

#[test]
fn an_object_without_types_runs_and_its_maps_are_in_hex() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let elf = compile("clang", &directory().join("legacy.bpf.c"), &["-g0"])?;
    daemon.put("/v1/probes/p", &at_xdp(&of_object(&elf), &["packets"])).expect(201);
    assert_eq!(daemon.json("/v1/probes/p")["programs"]["ingress"]["entry"], "count");
    assert!(daemon.json("/v1/probes/p/metrics").to_string().contains("0x"));
    Ok(())
}

#[test]
fn what_is_no_object_for_this_machine_is_named() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let path = directory().join("sections.bpf.c");
    let good = compile("clang", &path, &[])?;
    let mut foreign = good.clone();
    foreign[18] = 62;
    for (elf, words) in [
        (compile("clang", &path, &["-target", "bpfeb"])?, "big-endian"),
        (foreign, "not a 64-bit BPF object"),
        (compile("clang", &directory().join("tutorial.bpf.c"), &["-g0"])?, "-g"),
        (good[..100].to_vec(), "damaged"),
    ] {
        let mut code = of_object(&elf);
        if words == "-g" {
            code["entry"] = json!("xdp_pass_func");
        }
        let answer = daemon.post("/v1/validate", &at_xdp(&code, &[]));
        ensure!(answer.status == 422 && answer.text().contains(words), "{words}: {}", answer.text());
    }
    Ok(())
}
