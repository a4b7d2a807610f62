//! Names and patterns of interfaces, and namespaces.

use std::path::Path;

use super::*;

#[test]
fn interfaces_follow_the_kernels_rule() {
    refused(
        &json!({ "interfaces": ["eth1"] }),
        "interfaces",
        "exclude each other",
    );
    for (bad, words) in [
        ("", "empty"),
        ("sixteen-bytes-xx", "15 bytes"),
        ("a b", "white space"),
        ("..", "not an interface name"),
        ("a:1", "not an interface name"),
    ] {
        refused(&json!({ "interface": bad }), "interface", words);
    }
    assert!(validate(&patched(&json!({ "interface": "fifteen-bytes-x" }))).is_ok());
    let findings =
        validate(&json!({ "interfaces": [], "ingress": { "source": "x" } })).unwrap_err();
    assert_eq!(findings[0].0, "interfaces");
    let findings = validate(&json!({})).unwrap_err();
    assert_eq!(findings.len(), 2, "{findings:?}");
}

#[test]
fn interfaces_may_be_patterns() {
    let probe = validate(&json!({
        "interfaces": ["veth*", "eth[0-9]", "mon0"], "wait_for_interface": true, "netns": "/run/netns/x",
        "ingress": { "source": "x" },
    }))
    .unwrap();
    assert!(probe.places.wait_for_interface);
    assert_eq!(probe.places.netns(), Some(Path::new("/run/netns/x")));
    for (name, wanted) in [
        ("veth12", true),
        ("eth5", true),
        ("mon0", true),
        ("mon1", false),
        ("eth", false),
    ] {
        assert_eq!(
            probe
                .places
                .interfaces
                .iter()
                .any(|pattern| pattern.matches(name)),
            wanted,
            "{name}"
        );
    }
    let kinds: Vec<_> = probe
        .places
        .interfaces
        .iter()
        .map(|p| (p.text.as_str(), p.is_pattern()))
        .collect();
    assert_eq!(
        kinds,
        [("veth*", true), ("eth[0-9]", true), ("mon0", false)]
    );
    assert!(validate(&patched(&json!({ "interface": "*" }))).is_ok());
    assert!(validate(&patched(&json!({ "interface": "en[pos][0123456789]*" }))).is_ok());

    for (bad, words) in [
        ("eth[0", "a '[' has no ']'"),
        ("eth[]", "a '[' has no ']'"),
        ("v**", "two '*' in a row"),
        ("a/*", "not an interface name"),
        ("a b*", "white space"),
        (&"*a".repeat(33), "64 bytes"),
    ] {
        refused(&json!({ "interface": bad }), "interface", words);
    }
}

#[test]
fn namespaces_are_absolute_paths() {
    for (bad, words) in [
        ("", "not an absolute path"),
        ("x", "such as /run/netns/NAME"),
        ("/run/\u{0}", "without NUL"),
        (&format!("/{}", "x".repeat(4095)), "4095 bytes"),
    ] {
        refused(&json!({ "netns": bad }), "netns", words);
    }
}

#[test]
fn requests_name_namespaces_where_there_are_such() {
    let checked = |path: &str| {
        let document = json!({ "interface": "eth0", "netns": path }).to_string();
        check_netns(&parse_document(document.as_bytes()).unwrap())
    };
    for path in [
        "/run/netns/blue",
        "/var/run/netns/cni-1-2",
        "/proc/12/ns/net",
        "/proc/self/ns/net",
    ] {
        checked(path).unwrap();
    }
    for path in [
        "/etc/shadow",
        "/run/netns/",
        "/run/netns/..",
        "/run/netns/../../etc/shadow",
        "/run/netns/a/b",
        "/run/netns//etc",
        "/proc/1/root/etc/shadow",
        "/proc/1/../1/ns/net",
        "/proc//ns/net",
        "/proc/x/ns/net",
        "/proc/1/ns/net/",
        "/proc/1/root/proc/2/ns/net",
        "//run/netns/blue",
    ] {
        let refused = checked(path).unwrap_err().findings;
        assert_eq!(refused[0].field.as_deref(), Some("netns"));
        assert!(
            refused[0].message.contains("give /run/netns/NAME"),
            "{}",
            refused[0].message
        );
    }
}
