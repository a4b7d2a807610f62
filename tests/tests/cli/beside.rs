//! Sources of several files.

use std::fs;

use anyhow::Result;
use serde_json::{Value, json};

use crate::scene::Scene;

const SOURCE: &str = r#"#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "lib/sizes.h"
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, struct sizes); } sizes SEC(".maps");
SEC("xdp") int count(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct sizes *s = bpf_map_lookup_elem(&sizes, &zero);
	if (s) __sync_fetch_and_add(ctx->data_end - ctx->data < LIMIT ? &s->small : &s->large, 1);
	return XDP_PASS;
}
char LICENSE[] SEC("license") = "GPL";
"#;

#[test]
fn headers_beside_a_source_are_sent_along() -> Result<()> {
    let mut scene = Scene::new()?;
    let folder = scene.folder.path().to_owned();
    fs::create_dir(folder.join("lib"))?;
    let write = |name: &str, text: &str| fs::write(folder.join(name), text);
    write("several.bpf.c", SOURCE)?;
    write("lib/limit.h", "#define LIMIT 256\n")?;
    write(
        "lib/sizes.h",
        "#include \"limit.h\"\nstruct sizes { __u64 small; __u64 large; };\n",
    )?;
    write("lib/other.h", "#error nobody includes this")?;
    write(
        "several.yaml",
        "interface: mon0\ningress: { source_file: several.bpf.c, metrics: [ { name: sizes, map: sizes } ] }\n",
    )?;
    scene.succeed("apply -f several.yaml");
    scene.generator.send(7)?;
    let document: Value = serde_json::from_str(&scene.succeed("metrics several -o json"))?;
    assert_eq!(
        document["ingress"]["sizes"]["entries"][0]["value"],
        json!({ "small": 7, "large": 0 })
    );
    // Another text of a file is another revision, and the difference shows it.
    write("lib/limit.h", "#define LIMIT 1\n")?;
    scene.succeed("apply -f several.yaml");
    scene.generator.send(5)?;
    let document: Value = serde_json::from_str(&scene.succeed("metrics several -o json"))?;
    assert_eq!(
        document["ingress"]["sizes"]["entries"][0]["value"],
        json!({ "small": 7, "large": 5 })
    );
    let difference = scene.succeed("diff several");
    assert!(
        difference.contains("#define LIMIT 256") && difference.contains("#define LIMIT 1"),
        "{difference}"
    );
    let status: Value = serde_json::from_str(&scene.succeed("get several -o json"))?;
    let files = &status["config"]["ingress"]["files"];
    assert_eq!(files["lib/limit.h"], "#define LIMIT 1\n", "{status}");
    assert_eq!(files.as_object().map(serde_json::Map::len), Some(2));
    // A mistake is shown at the user's own file.
    write(
        "lib/sizes.h",
        "#include \"limit.h\"\nstruct sizes { __u64 small; u64_t large; };\n",
    )?;
    let refused = scene.run("apply -f several.yaml")?;
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("lib/sizes.h:2:"), "{}", refused.err);
    assert!(
        refused
            .err
            .contains("2 | struct sizes { __u64 small; u64_t large; };"),
        "{}",
        refused.err
    );
    let unchanged: Value = serde_json::from_str(&scene.succeed("get several -o json"))?;
    assert_eq!(unchanged["revision"], status["revision"]);
    Ok(())
}
