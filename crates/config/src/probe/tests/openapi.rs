//! api/openapi.yaml describes what this module accepts.

use super::*;

#[test]
fn it_has_the_same_choices_and_limits() {
    let schemas = &document()["components"]["schemas"];
    let names = |schema: &str| schemas[schema]["enum"].as_array().unwrap().clone();
    assert_eq!(names("Position"), Position::NAMES.map(|(name, _)| name));
    assert_eq!(names("OnReplace"), OnReplace::NAMES.map(|(name, _)| name));
    let priority = &schemas["Priority"];
    assert_eq!(
        (&priority["minimum"], &priority["maximum"]),
        (&json!(i16::MIN), &json!(i16::MAX))
    );
}

fn document() -> Value {
    yaml_serde::from_str(include_str!("../../../../../api/openapi.yaml")).unwrap()
}

#[test]
fn its_examples_are_valid() {
    let document = document();
    let examples = &document["components"]["requestBodies"]["Config"]["content"]["application/json"]
        ["examples"];
    let examples = examples.as_object().unwrap();
    assert!(examples.len() > 1);
    for (name, example) in examples {
        assert!(
            validate(&example["value"]).is_ok(),
            "{name}: {:?}",
            validate(&example["value"])
        );
    }
}

#[test]
fn it_knows_the_same_fields() {
    let schemas = &document()["components"]["schemas"];
    let metric = |field: &str| json!({ "ingress": { "metrics": [{ field: null }] } });
    let ingress = |field: &str| json!({ "ingress": { field: null } });
    let egress = |field: &str| json!({ "egress": { field: null } });
    let window = |field: &str| json!({ "window": { field: null } });
    let top = |field: &str| json!({ field: null });
    for (schema, place) in [
        ("Config", &top as &dyn Fn(&str) -> Value),
        ("Ingress", &ingress),
        ("Egress", &egress),
        ("Metric", &metric),
        ("WindowConfig", &window),
    ] {
        let described: Vec<_> = schemas[schema]["properties"]
            .as_object()
            .unwrap()
            .keys()
            .collect();
        let message = parse_document(place("bogus").to_string().as_bytes())
            .unwrap_err()
            .to_string();
        let (_, known) = message.split_once("expected one of ").unwrap();
        // Modes of egress, and files with sources, are read and refused.
        let known: Vec<_> = known
            .split(", ")
            .map(|name| name.trim_matches('`'))
            .filter(|name| !(schema == "Egress" && *name == "mode" || *name == "source_file"))
            .collect();
        assert_eq!(described, known, "{schema}");
    }
}
