use super::*;

fn read(text: &str) -> Result<StreamConfig, Vec<String>> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stream.yaml");
    std::fs::write(&path, text).unwrap();
    StreamConfig::read(&path).map_err(|error| {
        let shown = format!("{}/", directory.path().display());
        error.mistakes.iter().map(|mistake| mistake.to_string().replace(&shown, "")).collect()
    })
}

#[test]
fn the_example_of_the_contract_is_read() {
    let text = "name: archive\nfrom: { servers: [\"unix:/run/twinprobe/twinprobe.sock\"], probes: [\"*\"] }\n\
                to: [ { file: { directory: /data } }, \"file:///more\" ]\nmemory: 64MiB\nlisten: 127.0.0.1:9471\n";
    let config = read(text).unwrap();
    assert_eq!((config.name.as_str(), config.memory), ("archive", 64 << 20));
    let labels: Vec<&str> =
        config.destinations.iter().map(|destination| destination.label.as_str()).collect();
    assert_eq!(labels, ["file", "file-2"]);
    let least = read("{\"to\": [\"file:///data\"]}").unwrap();
    assert_eq!((least.name.as_str(), least.servers[0].0.as_str()), ("stream", Server::DEFAULT));
}

#[test]
fn each_mistake_is_named_with_its_field_and_line() {
    for (text, expected) in [
        ("name: a\n", "stream.yaml: to: a stream needs a receiver"),
        ("to: []\n", "stream.yaml:1:1: to: a stream needs a receiver"),
        ("name: a\ntoo: []\n", "stream.yaml:2:1: too: unknown field `too`"),
        ("to:\n- file:\n    dir: /d\n", "stream.yaml:3:5: to[0].file.dir: unknown field `dir`"),
        ("to:\n- smoke: {}\n", "stream.yaml:2:3: to[0].smoke: this build has no receiver smoke"),
        ("to: [\"smoke://x\"]\n", "stream.yaml:1:6: to[0]: this build has no receiver smoke://"),
        ("to: [\"file:///d\"]\nmemory: 5 parsecs\n", "stream.yaml:2:1: memory: \"5 parsecs\" is not a size"),
        ("to: [\"file:///d\"]\nfrom:\n  servers: [ftp://x]\n", "stream.yaml:3:13: from.servers[0]: ftp://x"),
        ("to: [\"file:///d\"]\nfrom: { probes: [\"[\"] }\n", "stream.yaml:2:18: from.probes[0]"),
        ("to: [\"file:///d\"]\nfrom: { tokenFile: /none }\n", "stream.yaml:2:9: from.tokenFile: /none"),
        ("to: [\"file:///d\", \"file:///d\"]\n", "to[1]: file:///d stands there twice"),
        ("name: \"/\"\nto: [\"file:///d\"]\n", "stream.yaml:1:1: name: \"/\" is not a name of a collector"),
        ("to: [\"file:///d\"]\nlisten: here\n", "stream.yaml:2:1: listen: \"here\" is not an address"),
        ("to: {\n", "stream.yaml:2:1"),
    ] {
        let mistakes = read(text).expect_err(text);
        assert!(mistakes.iter().any(|mistake| mistake.contains(expected)), "{text}: {mistakes:?}");
    }
}

#[test]
fn a_password_in_a_url_is_refused_and_not_repeated() {
    let mistakes = read("to: [\"nats://me:hunter2@host/S\"]\n").unwrap_err().join("\n");
    assert!(mistakes.contains("names a file with the secret") && !mistakes.contains("hunter2"), "{mistakes}");
}
