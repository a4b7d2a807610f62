use serde_json::{Value, json};
use twinprobe_api::parse_document;
use twinprobe_config::ProbeConfig;

use super::*;

fn config(patch: &Value) -> PlacesConfig {
    let mut config = json!({ "ingress": { "source": "x" } });
    let fields = patch.as_object().unwrap().clone();
    config.as_object_mut().unwrap().extend(fields);
    ProbeConfig::validate("p", &parse_document(config.to_string().as_bytes()).unwrap())
        .unwrap()
        .places
}

fn interfaces() -> Interfaces {
    let mut interfaces = Interfaces::default();
    for (index, name) in [(1, "lo"), (2, "eth0"), (9, "veth1"), (4, "veth2")] {
        interfaces.insert(name, index, []);
    }
    interfaces.insert("eth1", 3, ["enp0s3".to_owned()]);
    interfaces
}

fn wanted(names: &[(&str, u32)]) -> Vec<(String, u32)> {
    names
        .iter()
        .map(|(name, index)| ((*name).to_owned(), *index))
        .collect()
}

fn pending(interface: &str, reason: &str) -> PendingPlace {
    PendingPlace {
        interface: interface.to_owned(),
        reason: reason.to_owned(),
    }
}

fn refused(patch: &Value, interfaces: Result<&Interfaces, &io::Error>) -> Vec<(String, String)> {
    let findings = place_new(&config(patch), interfaces, &SelectedPods::default())
        .unwrap_err()
        .findings;
    assert!(
        findings
            .iter()
            .all(|finding| finding.stage == Stage::Attach)
    );
    findings
        .into_iter()
        .map(|finding| (finding.field.unwrap(), finding.message))
        .collect()
}

#[test]
fn names_and_patterns_are_placed_once() {
    let config = config(&json!({ "interfaces": ["veth2", "veth*", "eth[0-9]", "enp0s3"] }));
    let placement = place_new(&config, Ok(&interfaces()), &SelectedPods::default()).unwrap();
    // `enp0s3` is an alternative name of eth1, which a pattern has placed already.
    assert_eq!(
        placement.wanted,
        wanted(&[("veth2", 4), ("veth1", 9), ("eth0", 2), ("eth1", 3)])
    );
    assert_eq!(placement.pending, []);
}

#[test]
fn what_is_excluded_is_taken_out_of_patterns() {
    let all = ["lo", "eth0", "enp0s3", "veth[2-9]"];
    for (excluded, expected) in [
        (
            &all[..0],
            &[
                ("eth0", 2),
                ("eth1", 3),
                ("lo", 1),
                ("veth1", 9),
                ("veth2", 4),
            ][..],
        ),
        (
            &all[..1],
            &[("eth0", 2), ("eth1", 3), ("veth1", 9), ("veth2", 4)],
        ),
        // The configuration excludes the interface by an alternative name.
        (
            &all[2..3],
            &[("eth0", 2), ("lo", 1), ("veth1", 9), ("veth2", 4)],
        ),
        (&all[..], &[("veth1", 9)]),
    ] {
        let config = config(&json!({ "interfaces": ["*"], "exclude_interfaces": excluded }));
        assert_eq!(
            place(&config, Ok(&interfaces()), &SelectedPods::default()).wanted,
            wanted(expected),
            "{excluded:?}"
        );
    }
    let config = config(&json!({ "interface": "veth*", "exclude_interfaces": ["v*"] }));
    let placement = place_new(&config, Ok(&interfaces()), &SelectedPods::default()).unwrap();
    assert_eq!(
        placement.pending,
        [pending("veth*", "no interface matches veth* yet")]
    );
}

#[test]
fn alternative_names_give_the_proper_one() {
    let config = config(&json!({ "interface": "enp0s3" }));
    assert_eq!(
        place(&config, Ok(&interfaces()), &SelectedPods::default()).wanted,
        wanted(&[("eth1", 3)])
    );
}

#[test]
fn patterns_wait_by_themselves_and_names_when_they_are_told_to() {
    let patch = json!({ "interfaces": ["tap*", "eth0", "eth7"] });
    let waiting = json!({ "interfaces": ["tap*", "eth0", "eth7"], "wait_for_interface": true });
    let expected = Placement {
        wanted: wanted(&[("eth0", 2)]),
        named_by: vec![1],
        pending: vec![
            pending("tap*", "no interface matches tap* yet"),
            pending("eth7", "there is no interface eth7 yet"),
        ],
    };
    assert_eq!(
        place_new(
            &config(&waiting),
            Ok(&interfaces()),
            &SelectedPods::default()
        ),
        Ok(expected.clone())
    );
    assert_eq!(
        place(&config(&patch), Ok(&interfaces()), &SelectedPods::default()),
        expected,
        "once it is deployed"
    );
    let [(field, message)] = &refused(&patch, Ok(&interfaces()))[..] else {
        panic!("one finding")
    };
    assert_eq!(field, "interface");
    assert!(
        message.contains("no interface eth7 in the daemon's network namespace"),
        "{message}"
    );
    assert!(message.contains("wait_for_interface"), "{message}");
    let only = config(&json!({ "interface": "tap*" }));
    assert_eq!(
        place_new(&only, Ok(&interfaces()), &SelectedPods::default())
            .unwrap()
            .pending
            .len(),
        1
    );
}

#[test]
fn all_that_are_missing_are_named() {
    let patch = json!({ "interfaces": ["a", "b"], "netns": "/run/netns/x" });
    let findings = refused(&patch, Ok(&interfaces()));
    assert_eq!(findings.len(), 2);
    assert!(
        findings[1]
            .1
            .contains("no interface b in the network namespace /run/netns/x")
    );
    let reasons = place(&config(&patch), Ok(&interfaces()), &SelectedPods::default()).pending;
    assert_eq!(
        reasons[0],
        pending("a", "there is no interface a in /run/netns/x yet")
    );
}

#[test]
fn everything_waits_for_the_namespace() {
    let text = "there is no network namespace /run/netns/x that can be opened";
    let error = io::Error::new(io::ErrorKind::NotFound, text);
    let patch = json!({ "interfaces": ["veth*", "eth0"], "netns": "/run/netns/x" });
    let placement = place(&config(&patch), Err(&error), &SelectedPods::default());
    assert_eq!(placement.wanted, []);
    assert_eq!(
        placement.pending,
        [pending("veth*", text), pending("eth0", text)]
    );
    let [(field, message)] = &refused(&patch, Err(&error))[..] else {
        panic!("one finding")
    };
    assert_eq!(field, "netns");
    assert!(
        message.starts_with(text) && message.contains("wait_for_interface"),
        "{message}"
    );

    let waiting =
        json!({ "interface": "eth0", "netns": "/run/netns/x", "wait_for_interface": true });
    assert_eq!(
        place_new(&config(&waiting), Err(&error), &SelectedPods::default())
            .unwrap()
            .pending,
        [pending("eth0", text)]
    );
    let [(field, _)] = &refused(&json!({ "interface": "eth0" }), Err(&error))[..] else {
        panic!("one finding")
    };
    assert_eq!(field, "interface");
}

#[test]
fn interfaces_of_pods_are_placed_and_pods_without_one_are_waited_for() {
    let config =
        config(&json!({ "pods": { "labels": { "app": "web" } }, "exclude_interfaces": ["veth2"] }));
    let placed = |selected: &SelectedPods| place(&config, Ok(&interfaces()), selected);
    let at = |name: &str, index: u32| (name.to_owned(), index);
    // The configuration excludes veth2, and veth9 has disappeared since the look.
    let found = vec![
        at("veth9", 90),
        at("veth1", 9),
        at("veth2", 4),
        at("veth1", 9),
    ];
    let waiting = vec![("blue/a".to_owned(), "its cgroup is not there yet")];
    let placement = placed(&SelectedPods {
        interfaces: found,
        waiting,
        ..SelectedPods::default()
    });
    assert_eq!(placement.wanted, wanted(&[("veth1", 9)]));
    assert_eq!(
        placement.pending,
        [pending("pod blue/a", "its cgroup is not there yet")]
    );
    let none = placed(&SelectedPods::default());
    assert_eq!(
        none.pending,
        [pending(
            "pods with app=web",
            "this node has no pods with app=web yet"
        )]
    );
    let on_host = placed(&SelectedPods {
        on_host: 2,
        ..SelectedPods::default()
    });
    assert!(
        on_host.pending[0].reason.contains("use the host's network"),
        "{on_host:?}"
    );
    place_new(&config, Ok(&interfaces()), &SelectedPods::default()).unwrap();
}
