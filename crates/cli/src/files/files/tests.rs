use serde_json::json;
use twinprobe_ebpf_common::finding::with_causes;

use super::*;

fn names(text: &str, stem: Option<&str>) -> Result<Vec<String>, ContentError> {
    let probes = named(parse(Path::new("dir/file.yaml"), text).unwrap(), stem)?;
    Ok(probes.into_iter().map(|probe| probe.name).collect())
}

/// Returns the message about a file that can't be read, with the causes.
fn refusal(text: &str) -> String {
    let Err(error) = parse(Path::new("dir/file.yaml"), text) else {
        panic!("{text} is accepted")
    };
    with_causes(&error)
}

#[test]
fn names_come_from_the_configuration_its_key_or_the_file() {
    assert_eq!(
        names(r#"{"interface": "eth0"}"#, Some("flows")).unwrap(),
        ["flows"]
    );
    assert_eq!(
        names("interface: eth0\nname: inner\n", Some("flows")).unwrap(),
        ["inner"]
    );
    assert_eq!(
        names("name: a\n---\nname: b\n---\n", None).unwrap(),
        ["a", "b"]
    );
    assert_eq!(names("- name: a\n- name: b\n", None).unwrap(), ["a", "b"]);
    assert_eq!(
        names(r#"[{"name": "a"}, {"name": "b"}]"#, None).unwrap(),
        ["a", "b"]
    );
    assert_eq!(
        names(
            "probes:\n  x: {interface: eth0}\n  y: {interface: eth1}\n",
            None
        )
        .unwrap(),
        ["x", "y"]
    );
}

#[test]
fn mistakes_are_named() {
    let problem = |text, stem| names(text, stem).unwrap_err();
    assert_eq!(problem("interface: eth0\n", None), ContentError::NoName(1));
    assert_eq!(
        problem("name: a\n---\ninterface: eth0\n", Some("flows")),
        ContentError::NoName(2)
    );
    assert_eq!(
        problem("name: a\n---\nname: a\n", None),
        ContentError::Twice("a".to_owned())
    );
    assert_eq!(
        problem("probes: {a: {}, a: {}}", None),
        ContentError::Twice("a".to_owned())
    );
    assert_eq!(problem("", Some("flows")), ContentError::Empty);
    assert_eq!(problem("[]", None), ContentError::Empty);
    assert_eq!(problem("# nothing\n---\n", None), ContentError::Empty);
}

#[test]
fn mistakes_have_a_field_and_a_line() {
    // The YAML library gives no line for the mapping that begins a document; the field's name
    // replaces it there.
    for (text, words) in [
        (
            "name: a\ninterface: eth0\nname: 5\n",
            &["duplicate field `name`"][..],
        ),
        (
            "name: 5\n",
            &[
                "name: invalid type: integer `5`, expected a string",
                "line 1",
            ],
        ),
        (
            "name: a\ninterface: 5\n",
            &[
                "interface: invalid type: integer `5`, expected a string",
                "line 2",
            ],
        ),
        (
            "name: a\nbogus: 1\n",
            &["unknown field `bogus`, expected one of `name`, `interface`"],
        ),
        (
            "ingress:\n  bogus: 1\n",
            &["ingress: unknown field `bogus`", "line 2"],
        ),
        (
            "ingress:\n  source_file: 5\n",
            &["ingress.source_file: invalid type: integer", "line 2"],
        ),
        (
            "- name: a\n- metrics: []\n",
            &["[1]: unknown field `metrics`", "line 2"],
        ),
        (
            "probes:\n  a:\n    window: {align: 1}\n",
            &["probes.a.window.align: invalid type", "line 3"],
        ),
        (
            "ingress:\n  defines: {N: '1', N: '2'}\n",
            &["ingress.defines: duplicate field `N`", "line 2"],
        ),
        (
            "ingress: [xdp]\n",
            &["ingress: ", "expected an object", "line 1"],
        ),
        (
            "just text",
            &["invalid type: string \"just text\", expected a configuration"],
        ),
        (
            "probes: [a]",
            &[
                "probes: ",
                "expected an object from name to configuration",
                "line 1",
            ],
        ),
        (
            "name: x\nprobes: {}\n",
            &["`probes` has no field beside it"],
        ),
        (
            "interfaces: [a\nname: b\n",
            &["neither in JSON nor in YAML", "line 2"],
        ),
        (
            "{\"name\": \"a\",\n \"bogus\": 1}",
            &["in JSON: unknown field `bogus`", "line 2"],
        ),
        (
            "{\"name\": \"a\",\n \"interface\": }{",
            &["in JSON: interface: expected value", "line 2"],
        ),
        (
            "{\"name\": \"a\"}\n{",
            &["in JSON: trailing characters", "line 2"],
        ),
        (
            "{\"name\": \"a\",\n \"ingress\": {\"hook\": 1}}",
            &["in JSON: ingress.hook: invalid type", "line 2"],
        ),
        (
            "{\"name\": \"a\",\n \"name\": \"b\"}",
            &["in JSON: ", "duplicate field `name`", "line 2"],
        ),
    ] {
        let refusal = refusal(text);
        for word in words {
            assert!(
                refusal.contains(word),
                "{text:?}: {refusal:?} lacks {word:?}"
            );
        }
    }
}

#[test]
fn source_files_are_inlined_relative_to_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("probe.c"), "int x;\n").unwrap();
    let write = |text: &str| std::fs::write(at("flows.yaml"), text).unwrap();
    write("ingress: {source_file: probe.c}\negress: {source: int y;}\n");
    let probes = read(&at("flows.yaml")).unwrap();
    assert_eq!(probes[0].name, "flows");
    let expected = json!({ "ingress": { "source": "int x;\n" }, "egress": { "source": "int y;" } });
    assert_eq!(serde_json::to_value(&probes[0].config).unwrap(), expected);

    write("ingress: {source_file: probe.c, source: int y;}\n");
    assert!(
        read(&at("flows.yaml"))
            .unwrap_err()
            .to_string()
            .contains("exclude each other")
    );
    write("ingress: {source_file: missing.c}\n");
    assert!(
        read(&at("flows.yaml"))
            .unwrap_err()
            .to_string()
            .contains("missing.c")
    );
    assert!(matches!(
        read(&at("nothing.yaml")),
        Err(ProbeFileError::Read { .. })
    ));
}

#[test]
fn all_probe_files_of_a_directory_are_read_and_names_are_unique() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let all = || read_all(&[directory.path().to_owned()]);
    assert!(
        all()
            .unwrap_err()
            .to_string()
            .contains("ends in .json, .yaml or .yml")
    );
    for (name, text) in [
        ("b.yaml", "interface: x"),
        ("a.json", "{}"),
        ("c.yml", "name: d"),
        ("README.md", "#"),
    ] {
        std::fs::write(at(name), text).unwrap();
    }
    std::fs::create_dir(at("folder.json")).unwrap();
    let names: Vec<String> = all().unwrap().into_iter().map(|probe| probe.name).collect();
    assert_eq!(names, ["a", "b", "d"]);
    let twice = read_all(&[directory.path().to_owned(), at("a.json")]).unwrap_err();
    assert!(
        twice.to_string().contains("there are two probes \"a\""),
        "{twice}"
    );
}

#[test]
fn findings_are_shown_at_the_users_own_file() {
    use twinprobe_ebpf_common::finding::{Finding, Stage};
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("dns.bpf.c"), "#include \"sizes.h\"\n").unwrap();
    std::fs::write(at("sizes.h"), "int z;\n").unwrap();
    std::fs::write(
        at("dns.yaml"),
        "ingress: {source_file: dns.bpf.c}\negress: {source: int y;, files: {y.h: int z;}}\n",
    )
    .unwrap();
    let probe = read(&at("dns.yaml")).unwrap().remove(0);
    let place = |field: &str| {
        probe
            .sources
            .place(&Finding::new(Stage::Load, field, "").at(37, Some(11)))
    };
    assert_eq!(
        place("ingress.source"),
        Some(format!("{}:37:11", at("dns.bpf.c").display()))
    );
    assert_eq!(
        place("egress.source").as_deref(),
        Some("egress.source:37:11")
    );
    assert_eq!(
        place("ingress.files.sizes.h"),
        Some(format!("{}:37:11", at("sizes.h").display()))
    );
    assert_eq!(
        place("egress.files.y.h").as_deref(),
        Some("egress.files.y.h:37:11")
    );
    let of = |field: &str| {
        probe
            .sources
            .of(&Finding::new(Stage::Load, field, ""))
            .map(|source| &*source.text)
    };
    assert_eq!(
        (of("ingress.files.sizes.h"), of("egress.files.y.h")),
        (Some("int z;\n"), Some("int z;"))
    );
    assert_eq!(
        (
            of("ingress.files.other.h"),
            of("ingress.sources"),
            of("ingress.hook.x")
        ),
        (None, None, None)
    );
}
