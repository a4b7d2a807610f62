//! The configuration that a node gives to its daemon: the revision's configuration, with compiled
//! objects in place of the sources.

use twinprobe_api::{ConfigDocument, DirectionDocument, RevisionObjects, RevisionSpec};

use crate::revision::digest;

/// The properties of a node that select loadable objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeMachine<'a> {
    /// The architecture, such as `x86_64`.
    pub architecture: &'a str,
    /// True if the kernel has XDP programs for packets of several buffers (Linux 5.18).
    pub frags: bool,
}

/// Returns the configuration that a node puts into its daemon. Without an object for the node the
/// sources stay in it.
pub fn for_node(
    spec: &RevisionSpec,
    machine: NodeMachine<'_>,
) -> serde_json::Result<ConfigDocument> {
    let config: ConfigDocument = serde_json::from_value(spec.config.clone())?;
    let compiled = spec
        .compiled
        .as_ref()
        .filter(|it| it.architecture == machine.architecture);
    let mut objects = compiled.iter().flat_map(|compiled| &compiled.objects);
    let fitting = objects.find(|objects| objects.frags.is_none_or(|frags| frags == machine.frags));
    Ok(fitting.map_or_else(|| config.clone(), |objects| with_objects(&config, objects)))
}

/// Returns a configuration with objects in place of its sources.
pub fn with_objects(config: &ConfigDocument, objects: &RevisionObjects) -> ConfigDocument {
    let mut config = config.clone();
    let take = |direction: &mut Option<DirectionDocument>, object: &Option<String>| {
        if let (Some(direction), Some(object)) = (direction, object) {
            direction.take_object(object.clone());
        }
    };
    take(&mut config.ingress, &objects.ingress);
    take(&mut config.egress, &objects.egress);
    config.share(&objects.shared_maps);
    config
}

/// Tells whether a configuration with this digest is a revision in one of its forms: with the
/// sources, or with objects for any kernel. A node may have put the form for its earlier kernel.
pub fn is_form_of(spec: &RevisionSpec, found: &str) -> bool {
    if spec.digest == found {
        return true;
    }
    let Some(compiled) = &spec.compiled else {
        return false;
    };
    let Ok(config) = serde_json::from_value::<ConfigDocument>(spec.config.clone()) else {
        return false;
    };
    compiled
        .objects
        .iter()
        .any(|objects| digest(&with_objects(&config, objects)) == found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use twinprobe_api::CompiledRevision;

    use super::*;

    fn revision() -> RevisionSpec {
        let config = json!({ "interface": "lo", "ingress": {
            "source": "int x;", "defines": { "A": "1" }, "files": { "a.h": "" }, "dialect": "bcc", "entry": "see" } });
        let object = |frags, object: &str| RevisionObjects {
            frags: Some(frags),
            ingress: Some(object.to_owned()),
            shared_maps: vec!["table".to_owned()],
            ..RevisionObjects::default()
        };
        RevisionSpec {
            digest: digest(&serde_json::from_value(config.clone()).unwrap()),
            config,
            compiled: Some(CompiledRevision {
                compiler: "clang".to_owned(),
                architecture: "x86_64".to_owned(),
                objects: vec![object(true, "bmV3"), object(false, "b2xk")],
            }),
            ..RevisionSpec::default()
        }
    }

    fn machine(architecture: &str, frags: bool) -> NodeMachine<'_> {
        NodeMachine {
            architecture,
            frags,
        }
    }

    #[test]
    fn a_node_gets_the_object_for_its_kernel_and_nothing_of_the_source() {
        let spec = revision();
        for (frags, object) in [(true, "bmV3"), (false, "b2xk")] {
            let config = for_node(&spec, machine("x86_64", frags)).unwrap();
            let expected = json!({ "interface": "lo", "shared_maps": ["table"],
                "ingress": { "object": object, "entry": "see" } });
            assert_eq!(serde_json::to_value(config).unwrap(), expected);
        }
    }

    #[test]
    fn without_an_object_for_the_node_the_source_stays() {
        let mut spec = revision();
        let other = for_node(&spec, machine("aarch64", true)).unwrap();
        assert_eq!(digest(&other), spec.digest);
        spec.compiled.as_mut().unwrap().objects.remove(0);
        assert_eq!(
            digest(&for_node(&spec, machine("x86_64", true)).unwrap()),
            spec.digest
        );
        spec.compiled.as_mut().unwrap().objects[0].frags = None;
        let any = for_node(&spec, machine("x86_64", true)).unwrap();
        assert_eq!(any.ingress.unwrap().object.as_deref(), Some("b2xk"));
    }

    #[test]
    fn a_node_knows_each_form_of_a_revision_as_its_own() {
        let spec = revision();
        for machine in [
            machine("x86_64", true),
            machine("x86_64", false),
            machine("aarch64", true),
        ] {
            assert!(
                is_form_of(&spec, &digest(&for_node(&spec, machine).unwrap())),
                "{machine:?}"
            );
        }
        let mut other: ConfigDocument = serde_json::from_value(spec.config.clone()).unwrap();
        other.interface = Some("eth0".to_owned());
        assert!(!is_form_of(&spec, &digest(&other)));
    }
}
