use super::*;

fn malformed(bytes: &[u8]) -> (String, usize, usize) {
    match parse_document(bytes) {
        Err(ParseError::Malformed {
            message,
            line,
            column,
        }) => (message, line, column),
        other => panic!("not malformed: {other:?}"),
    }
}

fn invalid(text: &str) -> (String, String) {
    match parse_document(text.as_bytes()) {
        Err(ParseError::Invalid(rejection)) => {
            let finding = rejection.findings.into_iter().next().unwrap();
            assert_eq!(finding.stage, Stage::Config);
            (finding.field.unwrap_or_default(), finding.message)
        }
        other => panic!("not invalid: {other:?}"),
    }
}

const FULL: &str = r#"{
  "name": "flows", "interface": "eth0", "interfaces": ["a"],
  "wait_for_interface": true, "netns": "/run/netns/x", "priority": -1, "position": "first",
  "on_replace": "carry", "format": "json",
  "ingress": { "hook": "xdp", "mode": "auto", "verdict": "observe", "priority": 2, "position": "last", "source": "int x;",
    "defines": { "N": "1024" },
    "metrics": [ { "name": "n", "map": "m", "help": "h", "snapshot": true, "init": false, "export": true,
                   "agg": "sum", "merge": { "bytes": "max" } }, { "merge": "last", "on_replace": "reset" } ] },
  "egress": {}, "window": { "interval": "10s", "retain": 32 } }"#;

#[test]
fn every_field_of_the_contract_is_read_and_rendered_back() {
    let document = parse_document(FULL.as_bytes()).unwrap();
    let rendered = serde_json::to_value(&document).unwrap();
    assert_eq!(
        rendered,
        serde_json::from_str::<serde_json::Value>(FULL).unwrap()
    );
    assert_eq!(
        parse_document(rendered.to_string().as_bytes()).unwrap(),
        document
    );
    assert_eq!(parse_document(b"{}").unwrap(), ConfigDocument::default());
}

#[test]
fn what_is_no_json_is_malformed_with_its_place() {
    assert_eq!(malformed(b"").1, 1);
    assert!(malformed(b" \n").0.contains("empty"));
    assert_eq!(
        malformed(b"{\n  \"interface\": }"),
        ("expected value".to_owned(), 2, 16)
    );
    assert_eq!(malformed(b"{} x"), ("trailing characters".to_owned(), 1, 4));
    assert_eq!(
        malformed(b"{\n\"a\xff\": 1}"),
        ("the body is not UTF-8".to_owned(), 2, 3)
    );
    // The broken syntax is reported, although the unknown field comes before it.
    assert!(
        malformed(b"{\"bogus\": 1, \"interface\": \"eth0\"")
            .0
            .starts_with("EOF")
    );
    malformed(br#"{"interface": "\ud800"}"#);
}

#[test]
fn unknown_fields_are_named_with_the_known_ones() {
    let (field, message) = invalid(r#"{"ingress": {"metrics": [{"name": "a"}, {"aggr": "sum"}]}}"#);
    assert_eq!(field, "ingress.metrics[1].aggr");
    assert!(
        message.starts_with("unknown field `aggr`, expected one of `name`, `map`"),
        "{message}"
    );
    assert_eq!(invalid(r#"{"interfaze": "eth0"}"#).0, "interfaze");
    assert_eq!(invalid(r#"{"window": {"every": 1}}"#).0, "window.every");
}

#[test]
fn wrong_types_are_named() {
    let (field, message) = invalid(r#"{"ingress": {"metrics": [{"agg": 5}]}}"#);
    assert_eq!(
        (field.as_str(), message.as_str()),
        (
            "ingress.metrics[0].agg",
            "invalid type: integer `5`, expected a string"
        )
    );
    assert_eq!(invalid(r#"{"interface": null}"#).0, "interface");
    for priority in ["1.5", "\"1\"", "9223372036854775808"] {
        assert_eq!(
            invalid(&format!(r#"{{"priority": {priority}}}"#)).0,
            "priority"
        );
    }
    assert_eq!(
        invalid(r#"{"wait_for_interface": "yes"}"#).0,
        "wait_for_interface"
    );
    assert_eq!(
        invalid(r#"{"ingress": {"defines": {"N": 5}}}"#).0,
        "ingress.defines.N"
    );
    assert_eq!(
        invalid(r#"{"ingress": {"metrics": [{"merge": 5}]}}"#).0,
        "ingress.metrics[0].merge"
    );
    assert_eq!(
        invalid("[]"),
        (
            String::new(),
            "invalid type: sequence, expected an object".to_owned()
        )
    );
    assert_eq!(invalid("5").0, "");
}

#[test]
fn arrays_are_no_objects() {
    // serde would read a struct from the values in order.
    for text in [
        r#"["flows"]"#,
        r#"{"ingress": ["xdp"]}"#,
        r#"{"ingress": {"metrics": [["n", "m"]]}}"#,
    ] {
        invalid(text);
    }
}

#[test]
fn keys_that_come_twice_are_refused() {
    assert!(
        invalid(r#"{"interface": "a", "interface": "b"}"#)
            .1
            .contains("duplicate field `interface`")
    );
    assert!(
        invalid(r#"{"ingress": {"defines": {"N": "1", "N": "2"}}}"#)
            .1
            .contains("duplicate field `N`")
    );
    let merge = r#"{"ingress": {"metrics": [{"merge": {"a": "sum", "a": "max"}}]}}"#;
    assert!(invalid(merge).1.contains("duplicate field `a`"));
}

#[test]
fn files_are_for_the_command_line() {
    let (field, message) = invalid(r#"{"egress": {"source_file": "probe.c"}}"#);
    assert_eq!(field, "egress.source_file");
    assert!(message.contains("twinprobe apply"), "{message}");
}

#[test]
fn deep_nesting_is_refused() {
    let deep = "[".repeat(100_000);
    malformed(deep.as_bytes());
    let deep = format!(
        "{{\"interface\": {}{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert!(malformed(deep.as_bytes()).0.contains("64 levels"));
    let nested = |levels: usize| format!("{{\"a\": {}{}}}", "[".repeat(levels), "]".repeat(levels));
    assert!(malformed(nested(64).as_bytes()).0.contains("64 levels"));
    invalid(&nested(63));
    // Brackets in a string are not nested.
    let source = format!(
        r#"{{"interface": "{}\\\"{}"}}"#,
        "[".repeat(1000),
        "{".repeat(1000)
    );
    parse_document(source.as_bytes()).unwrap();
}

fn yaml_error(text: &str) -> ParseError {
    parse_yaml(text.as_bytes()).unwrap_err()
}

#[test]
fn yaml_is_read_by_the_same_rules() {
    assert_eq!(parse_yaml(FULL.as_bytes()), parse_document(FULL.as_bytes()));
    let document =
        parse_yaml(b"interface: eth0\ningress:\n  source: |\n    int x;\n    int y;\n").unwrap();
    assert_eq!(
        document.ingress.unwrap().source.unwrap(),
        "int x;\nint y;\n"
    );
    for (text, field, message) in [
        ("interfaze: eth0", "interfaze", "unknown field `interfaze`"),
        (
            "ingress:\n  defines: { N: 1024 }",
            "ingress.defines.N",
            "invalid type: integer `1024`, expected a string",
        ),
        (
            "interface: eth0\ninterface: eth1",
            "",
            "duplicate field `interface`",
        ),
        ("- eth0", "", "invalid type: sequence, expected an object"),
        (
            "ingress: { source_file: /etc/shadow }",
            "ingress.source_file",
            "the daemon reads no files",
        ),
    ] {
        let ParseError::Invalid(rejection) = yaml_error(text) else {
            panic!("{text} is malformed")
        };
        let finding = &rejection.findings[0];
        assert_eq!(
            finding.field.as_deref().unwrap_or_default(),
            field,
            "{text}: {finding:?}"
        );
        assert!(finding.message.starts_with(message), "{text}: {finding:?}");
    }
    for (text, at) in [
        ("a: b\nc: d: e\n", 2),
        ("interface: a\n---\ninterface: b", 1),
        ("", 1),
        ("a: b\n\nc: [1,", 3),
    ] {
        let ParseError::Malformed { line, message, .. } = yaml_error(text) else {
            panic!("{text}")
        };
        assert!((at..=at + 1).contains(&line), "{text}: {line}, {message}");
        assert!(
            !message.contains(" at line ") && !message.is_empty(),
            "{message}"
        );
    }
}

/// References to references make a small text large.
#[test]
fn yaml_that_would_grow_without_end_is_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..12 {
        let last = format!("*a{}", n - 1);
        text += &format!("a{n}: &a{n} [{}]\n", [&*last; 10].join(", "));
    }
    // If each reference were replaced by its text, the document would have 10^12 parts.
    assert!(parse_yaml(text.as_bytes()).is_err());
    assert!(parse_yaml(format!("interfaces: {}\n{text}", "[".repeat(5000)).as_bytes()).is_err());
    // Each reference to one long text makes a copy of it.
    let copies = format!(
        "interfaces:\n- &long {}\n{}",
        "x".repeat(100_000),
        "- *long\n".repeat(10_000)
    );
    let ParseError::Malformed { message, .. } = yaml_error(&copies) else {
        panic!("it is taken")
    };
    assert!(
        message.contains("references") && message.contains("limit"),
        "{message}"
    );
    let ParseError::Malformed { message, .. } = yaml_error("a: &a [*a]") else {
        panic!("it is taken")
    };
    assert!(message.contains("reference"), "{message}");
    let few = parse_yaml(b"interface: &name eth0\nname: *name\n").unwrap();
    assert_eq!(
        (few.interface.as_deref(), few.name.as_deref()),
        (Some("eth0"), Some("eth0"))
    );
}

/// A parser without these bounds takes minutes for each of the texts.
#[test]
fn yaml_that_would_take_long_is_refused_at_once() {
    let levels = 60_000;
    let begun = std::time::Instant::now();
    for text in [
        "{a: ".repeat(levels),
        "[".repeat(levels) + &"]".repeat(levels),
        "[\n".repeat(levels),
        "- ".repeat(levels) + "x",
        "? ".repeat(levels),
        (0..2000)
            .map(|level| format!("{}a:\n", " ".repeat(level)))
            .collect(),
    ] {
        let ParseError::Malformed {
            message,
            line,
            column,
        } = yaml_error(&text)
        else {
            panic!("it is taken")
        };
        assert!(
            message.contains("64 levels"),
            "{message} in {:?}",
            &text[..20]
        );
        assert!(line >= 1 && column >= 1);
    }
    let directives: String = (0..100_000).map(|n| format!("%TAG !a{n}! x\n")).collect();
    let ParseError::Malformed { message, .. } = yaml_error(&(directives + "---\na: b\n")) else {
        panic!("it is taken")
    };
    assert!(message.contains("16 directives"), "{message}");
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
}
