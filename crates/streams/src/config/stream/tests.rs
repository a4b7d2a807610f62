use super::*;

fn read(text: &str) -> Result<StreamConfig, Vec<String>> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stream.yaml");
    std::fs::write(&path, text).unwrap();
    StreamConfig::read(&path).map_err(|error| {
        let shown = format!("{}/", directory.path().display());
        error
            .mistakes
            .iter()
            .map(|mistake| mistake.to_string().replace(&shown, ""))
            .collect()
    })
}

#[test]
fn the_example_of_the_contract_is_read() {
    let text = "name: archive\nfrom: { servers: [\"unix:/run/twinprobe/twinprobe.sock\"], probes: [\"*\"] }\n\
                to: [ { file: { directory: /data } }, \"file:///more\" ]\nmemory: 64MiB\nlisten: 127.0.0.1:9471\n";
    let config = read(text).unwrap();
    assert_eq!((config.name.as_str(), config.memory), ("archive", 64 << 20));
    let labels: Vec<&str> = config
        .destinations
        .iter()
        .map(|destination| destination.label.as_str())
        .collect();
    assert_eq!(labels, ["file", "file-2"]);
    let least = read("{\"to\": [\"file:///data\"]}").unwrap();
    assert_eq!(
        (least.name.as_str(), least.servers[0].0.as_str()),
        ("stream", Server::DEFAULT)
    );
}

#[test]
fn each_mistake_is_named_with_its_field_and_line() {
    for (text, expected) in [
        ("name: a\n", "stream.yaml: to: a stream needs a receiver"),
        ("to: []\n", "stream.yaml:1:1: to: a stream needs a receiver"),
        (
            "name: a\ntoo: []\n",
            "stream.yaml:2:1: too: unknown field `too`",
        ),
        (
            "to:\n- file:\n    dir: /d\n",
            "stream.yaml:3:5: to[0].file.dir: unknown field `dir`",
        ),
        (
            "to:\n- smoke: {}\n",
            "stream.yaml:2:3: to[0].smoke: this build has no receiver smoke",
        ),
        (
            "to: [\"smoke://x\"]\n",
            "stream.yaml:1:6: to[0]: this build has no receiver smoke://",
        ),
        (
            "to: [\"file:///d\"]\nmemory: 5 parsecs\n",
            "stream.yaml:2:1: memory: \"5 parsecs\" is not a size",
        ),
        (
            "to: [\"file:///d\"]\nfrom:\n  servers: [ftp://x]\n",
            "stream.yaml:3:13: from.servers[0]: ftp://x",
        ),
        (
            "to: [\"file:///d\"]\nfrom: { probes: [\"[\"] }\n",
            "stream.yaml:2:18: from.probes[0]",
        ),
        (
            "to: [\"file:///d\"]\nfrom: { tokenFile: /none }\n",
            "stream.yaml:2:9: from.tokenFile: /none",
        ),
        (
            "to: [\"file:///d\", \"file:///d\"]\n",
            "to[1]: file:///d is listed twice",
        ),
        (
            "name: \"/\"\nto: [\"file:///d\"]\n",
            "stream.yaml:1:1: name: \"/\" is not a name of a collector",
        ),
        (
            "to: [\"file:///d\"]\nlisten: here\n",
            "stream.yaml:2:1: listen: \"here\" is not an address",
        ),
        ("to: {\n", "stream.yaml:2:1"),
        (
            "to:\n- kafka:\n  topic: t\n",
            "to[0]: one kind of receiver has its options below its name",
        ),
        (
            "to: [{ file: { directory: /d, every: 10 } }]\n",
            "to[0].file.every: 10 is not a time; write it as",
        ),
        ("- file:///d\n", "expected an object with `from` and `to`"),
    ] {
        let mistakes = read(text).expect_err(text);
        assert!(
            mistakes.iter().any(|mistake| mistake.contains(expected)),
            "{text}: {mistakes:?}"
        );
    }
}

/// Two receivers of one kind are the same only if they agree in everything that decides where
/// windows go.
#[test]
fn two_receivers_may_differ_in_any_part_of_their_place() {
    let is_twice = |kind: &str, first: &str, second: &str| {
        let text = format!("to: [{{ {kind}: {{ {first} }} }}, {{ {kind}: {{ {second} }} }}]\n");
        match read(&text) {
            Ok(_) => false,
            Err(mistakes) => {
                assert!(
                    mistakes
                        .iter()
                        .all(|mistake| mistake.contains("is listed twice")),
                    "{mistakes:?}"
                );
                true
            }
        }
    };
    for (kind, base, others) in [
        ("file", "directory: /d", &["directory: /e"][..]),
        (
            "s3",
            "bucket: b",
            &[
                "bucket: c",
                "bucket: b, prefix: p",
                "bucket: b, endpoint: \"https://h:9000\"",
            ],
        ),
        (
            "kafka",
            "brokers: [\"h:1\"], topic: t",
            &[
                "brokers: [\"i:1\"], topic: t",
                "brokers: [\"h:1\"], topic: u",
            ],
        ),
        (
            "nats",
            "servers: [h], stream: S",
            &[
                "servers: [i], stream: S",
                "servers: [h], stream: T",
                "servers: [h], stream: S, subject: other",
                "servers: [h], stream: S, credentialsFile: /account",
            ],
        ),
        (
            "postgres",
            "hosts: [h], database: d",
            &[
                "hosts: [i], database: d",
                "hosts: [h], database: e",
                "hosts: [h], database: d, schema: s",
            ],
        ),
        (
            "clickhouse",
            "url: \"https://h\", database: d",
            &["url: \"https://h\", database: e"],
        ),
        (
            "ipfix",
            "collector: h",
            &[
                "collector: i",
                "collector: h, domain: 1",
                "collector: h, transport: udp",
            ],
        ),
        (
            "prometheus",
            "url: \"https://h/w\"",
            &[
                "url: \"https://h/w?db=x\"",
                "url: \"https://h/w\", headers: { X-Scope-OrgID: a }",
                "url: \"https://h/w\", headersFile: /h",
                "url: \"https://h/w\", queryFile: /q",
                "url: \"https://h/w\", labels: { site: a }",
                "url: \"https://h/w\", user: a, passwordFile: /p",
                "url: \"https://h/w\", tokenFile: /t",
            ],
        ),
        (
            "otlp",
            "url: \"https://h/v1/metrics\"",
            &["url: \"https://h/v1/metrics\", labels: { k8s.cluster: a }"],
        ),
    ] {
        assert!(is_twice(kind, base, base), "{kind}");
        for other in others {
            assert!(!is_twice(kind, base, other), "{kind}: {other}");
            assert!(is_twice(kind, other, other), "{kind}: {other}");
        }
    }
    let options = "bucket: b, prefix: p";
    assert!(
        is_twice("s3", options, &format!("{options}/, every: 1m")),
        "the time changes no place"
    );
}

#[test]
fn a_password_in_a_url_is_refused_and_not_repeated() {
    let mistakes = read("to: [\"nats://me:hunter2@host/S\"]\n")
        .unwrap_err()
        .join("\n");
    assert!(
        mistakes.contains("names a file with the secret") && !mistakes.contains("hunter2"),
        "{mistakes}"
    );
}
