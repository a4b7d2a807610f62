//! Hostile sources: they learn nothing of this host, and endless compilations are ended.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::wait::PATIENCE;
use twinprobe_tests::{Bystanders, Daemon, Response, Topology};

/// The longest time of an answer: the daemon's limit for a compilation, and some time to answer.
const AT_MOST: Duration = PATIENCE;

struct Scene {
    daemon: Daemon,
    bystanders: Bystanders,
    _topology: Topology,
}

impl Scene {
    fn new() -> Result<Self> {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let bystanders = Bystanders::deploy(&daemon, &topology)?;
        Ok(Self {
            daemon,
            bystanders,
            _topology: topology,
        })
    }

    fn validate(&self, source: &str) -> Response {
        let config = json!({ "interface": "mon0", "ingress": { "source": source } });
        self.daemon.post("/v1/validate", &config)
    }

    /// Returns the answer to a source that must be refused, as text.
    fn refused(&self, source: &str) -> String {
        let begun = Instant::now();
        let answer = self.validate(source).expect(422);
        assert!(begun.elapsed() < AT_MOST, "{:?}", begun.elapsed());
        answer.json().to_string()
    }
}

/// Returns the content of a file of this host in pieces that no diagnostic has by chance.
fn words(path: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let pieces = text.split(['\n', '\0']).filter(|piece| piece.len() > 6);
    pieces
        .map(|piece| {
            serde_json::Value::from(piece)
                .to_string()
                .trim_matches('"')
                .to_owned()
        })
        .collect()
}

#[test]
fn files_of_this_host_are_not_shown() -> Result<()> {
    let scene = Scene::new()?;
    assert_eq!(
        scene.daemon.json("/v1/capabilities")["compiler"]["confined"],
        true
    );
    let secret = tempfile::NamedTempFile::new()?;
    fs::write(&secret, "a secret of this host\n")?;
    let secret = secret.path().to_str().expect("UTF-8").to_owned();
    let files = [
        "/etc/shadow",
        "/etc/passwd",
        "/proc/self/environ",
        "/proc/1/cmdline",
        &secret,
    ];
    for path in files {
        let words = words(path);
        assert!(
            !words.is_empty() || path.starts_with("/proc"),
            "{path} is empty"
        );
        for source in [
            format!("#include \"{path}\"\n"),
            format!("#include <{path}>\n"),
            format!("#include \"/usr/include/../..{path}\"\n"),
            format!("#define FILE <{path}>\n#include FILE\n"),
            format!("asm(\".incbin \\\"{path}\\\"\");\n"),
            format!("asm(\".include \\\"{path}\\\"\");\n"),
        ] {
            let answer = scene.refused(&source);
            for word in &words {
                assert!(
                    !answer.contains(word.as_str()),
                    "{source} shows {word}: {answer}"
                );
            }
        }
        // This source only asks whether the file exists.
        scene
            .validate(&format!(
                "#if __has_include(\"{path}\")\n#error there\n#endif\n#error\n"
            ))
            .expect(422);
    }
    scene.bystanders.finish()
}

/// Sources that would take all memory or endless time are ended, and the next source compiles.
#[test]
fn what_never_ends_is_ended_and_the_next_compiles() -> Result<()> {
    let scene = Scene::new()?;
    let doubled: String = (1..40)
        .map(|n| format!("#define A{n} A{} A{}\n", n - 1, n - 1))
        .collect::<String>();
    for (what, words, source) in [
        (
            "macros that double",
            "20 s of processor time",
            format!("#define A0 x;\n{doubled}A39\n"),
        ),
        (
            "an object of gigabytes",
            "68719476736 bytes",
            "char a[1UL << 36] = { 1 };\n".to_owned(),
        ),
        (
            "filling",
            "the compiler needed more than",
            "asm(\".fill 0x7fffffff, 8, 1\");\n".to_owned(),
        ),
        (
            "a file without an end",
            "file not found",
            "#include \"/dev/zero\"\n".to_owned(),
        ),
        ("its own input", "", "#include \"/dev/stdin\"\n".to_owned()),
        (
            "brackets",
            "nesting",
            format!("int x = {}1{};\n", "(".repeat(200_000), ")".repeat(200_000)),
        ),
    ] {
        let answer = scene.refused(&source);
        assert!(answer.contains(words), "{what}: {answer}");
    }
    scene
        .daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    scene.bystanders.finish()
}
