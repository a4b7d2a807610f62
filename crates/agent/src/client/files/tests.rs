use super::*;
use serde_json::json;

fn names(text: &str, stem: Option<&str>) -> Result<Vec<String>, FileError> {
    let probes = parse(Path::new("dir/file.yaml"), text, stem)?;
    Ok(probes.into_iter().map(|probe| probe.name).collect())
}

fn problem(text: &str, stem: Option<&str>) -> ContentError {
    match names(text, stem) {
        Err(FileError::Content { problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_come_from_the_configuration_its_key_or_the_file() {
    assert_eq!(names(r#"{"interface": "eth0"}"#, Some("flows")).unwrap(), ["flows"]);
    assert_eq!(names("interface: eth0\nname: inner\n", Some("flows")).unwrap(), ["inner"]);
    assert_eq!(names("name: a\n---\nname: b\n---\n", None).unwrap(), ["a", "b"]);
    assert_eq!(names("- name: a\n- name: b\n", None).unwrap(), ["a", "b"]);
    assert_eq!(names(r#"[{"name": "a"}, {"name": "b"}]"#, None).unwrap(), ["a", "b"]);
    assert_eq!(names("probes:\n  x: {interface: eth0}\n  y: {interface: eth1}\n", None).unwrap(), ["x", "y"]);
}

#[test]
fn mistakes_are_named() {
    assert_eq!(problem("interface: eth0\n", None), ContentError::NoName(1));
    assert_eq!(problem("name: a\n---\ninterface: eth0\n", Some("flows")), ContentError::NoName(2));
    assert_eq!(problem("name: a\n---\nname: a\n", None), ContentError::Twice("a".to_owned()));
    assert_eq!(problem("name: 5\n", None), ContentError::NameType);
    assert_eq!(problem("", Some("flows")), ContentError::Empty);
    assert_eq!(problem("[]", None), ContentError::Empty);
    assert_eq!(problem("just text", Some("flows")), ContentError::NotAnObject(1));
    assert_eq!(problem("probes: [a]", None), ContentError::Probes);
    assert_eq!(problem("probes: {}\nname: x\n", None), ContentError::Probes);
}

#[test]
fn syntax_errors_keep_the_place() {
    let error = names("{\"a\": 1,\n \"b\": }{", None).unwrap_err();
    assert!(matches!(&error, FileError::Json { source, .. } if source.line() == 2), "{error:?}");
    let error = names("a: [1\nb: 2\n", None).unwrap_err();
    assert!(matches!(&error, FileError::Yaml { source, .. } if source.location().is_some()), "{error:?}");
}

#[test]
fn keys_that_come_twice_are_refused() {
    for text in [r#"{"a": 1, "a": 2}"#, "a: 1\na: 2\n", "x: {a: 1, a: 2}\n"] {
        let error = names(text, Some("flows")).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("twice") || source.contains("duplicate"), "{source}");
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
    assert_eq!(Value::Object(probes[0].config.clone()), expected);

    write("ingress: {source_file: probe.c, source: int y;}\n");
    assert!(read(&at("flows.yaml")).unwrap_err().to_string().contains("exclude each other"));
    write("ingress: {source_file: 5}\n");
    assert!(read(&at("flows.yaml")).unwrap_err().to_string().contains("must be a string"));
    write("ingress: {source_file: missing.c}\n");
    assert!(read(&at("flows.yaml")).unwrap_err().to_string().contains("missing.c"));
    assert!(matches!(read(&at("nothing.yaml")), Err(FileError::Read { .. })));
}
