//! The definitions of the kinds, in the form that the API server takes.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use crate::objects::nodes::{ProbeAssignment, ProbeReport, ProbeRevision};
use crate::objects::probe::MonitoringProbe;
use crate::objects::rule::MonitoringRule;

/// Returns the definitions of all kinds.
///
/// # Errors
///
/// Fails if a definition has no schema, which is a mistake of this program.
pub fn definitions() -> serde_json::Result<Vec<Value>> {
    let kinds: [(CustomResourceDefinition, Vec<FieldRule>); 5] = [
        (MonitoringProbe::crd(), probe_rules()),
        (
            ProbeRevision::crd(),
            vec![("", "self == oldSelf", "a revision never changes")],
        ),
        (ProbeAssignment::crd(), Vec::new()),
        (ProbeReport::crd(), Vec::new()),
        (MonitoringRule::crd(), Vec::new()),
    ];
    kinds
        .into_iter()
        .map(|(definition, rules)| with_rules(&definition, rules))
        .collect()
}

/// Returns the definitions as one YAML document after the other.
///
/// # Errors
///
/// As [`definitions`].
pub fn definitions_yaml() -> anyhow::Result<String> {
    let mut text = String::new();
    for definition in definitions()? {
        text.push_str("---\n");
        text.push_str(&yaml_serde::to_string(&definition)?);
    }
    Ok(text)
}

/// A field below `spec`, a condition in CEL, and the API server's message if it does not hold.
type FieldRule = (&'static str, &'static str, &'static str);

const DURATION: &str = "self.matches('^([0-9]+(ms|s|m|h|d))+$')";

fn probe_rules() -> Vec<FieldRule> {
    vec![
        (
            "",
            "has(self.config) != has(self.library)",
            "give one of config and library",
        ),
        (
            "",
            "!has(self.config) || (!has(self.defines) && !has(self.variables) && !has(self.interval))",
            "defines, variables and interval go with library; write them into config",
        ),
        ("lease", DURATION, "a lease is a time such as 10m"),
        ("interval", DURATION, "an interval is a time such as 10s"),
        (
            "attach",
            "!has(self.podSelector) || !has(self.interfaces)",
            "podSelector and interfaces exclude each other",
        ),
        (
            "attach",
            "!has(self.namespaceSelector) || has(self.podSelector)",
            "namespaceSelector goes with podSelector",
        ),
        (
            "rollout.timeout",
            DURATION,
            "a timeout is a time such as 5m",
        ),
        (
            "rollout.steps",
            "self.all(step, step.matches('^[0-9]{1,3}([.][0-9]{1,2})?%$'))",
            "a step is a share of nodes, such as 1%, 12.5% or 100%",
        ),
        (
            "rollout.steps",
            "size(self) > 0 && self[size(self) - 1] == '100%'",
            "the last step is 100%, which is every node",
        ),
        (
            "rollout.steps",
            "!self.all(step, step.matches('^[0-9]{1,3}([.][0-9]{1,2})?%$')) || \
             self.map(step, double(step.replace('%', ''))).isSorted() && self.all(a, self.exists_one(b, \
             double(a.replace('%', '')) == double(b.replace('%', ''))))",
            "each step is more than the step before it",
        ),
    ]
}

fn with_rules(
    definition: &CustomResourceDefinition,
    rules: Vec<FieldRule>,
) -> serde_json::Result<Value> {
    let mut definition = serde_json::to_value(definition)?;
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    for (field, condition, message) in rules {
        let path = field
            .split('.')
            .filter(|name| !name.is_empty())
            .fold(spec.to_owned(), |path, name| {
                format!("{path}/properties/{name}")
            });
        let schema = definition.pointer_mut(&path).and_then(Value::as_object_mut);
        let schema = schema.ok_or_else(|| {
            <serde_json::Error as serde::de::Error>::custom(format!(
                "the schema has no field {path}"
            ))
        })?;
        let known = schema
            .entry("x-kubernetes-validations")
            .or_insert_with(|| json!([]));
        if let Some(known) = known.as_array_mut() {
            known.push(json!({ "rule": condition, "message": message }));
        }
        // The API server estimates the cost of a condition from the size of the values.
        if field == "rollout.steps" {
            schema.insert("maxItems".to_owned(), json!(20));
            if let Some(items) = schema.get_mut("items").and_then(Value::as_object_mut) {
                items.insert("maxLength".to_owned(), json!(8));
            }
        } else if condition == DURATION {
            schema.insert("maxLength".to_owned(), json!(32));
        }
    }
    formats(&mut definition);
    Ok(definition)
}

/// Replaces the formats that the API server does not know: otherwise clients would show a warning
/// for each.
fn formats(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let known = match fields.get("format").and_then(Value::as_str) {
                Some("uint8" | "uint16") => Some("int32"),
                Some("uint32" | "uint64") => Some("int64"),
                _ => None,
            };
            if let Some(known) = known {
                fields.insert("format".to_owned(), json!(known));
            }
            fields.values_mut().for_each(formats);
        }
        Value::Array(items) => items.iter_mut().for_each(formats),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_definition_with_its_conditions() {
        let definitions = definitions().unwrap();
        let names: Vec<_> = definitions
            .iter()
            .filter_map(|it| it.pointer("/metadata/name")?.as_str())
            .collect();
        let kinds = [
            "monitoringprobes",
            "proberevisions",
            "probeassignments",
            "probereports",
            "monitoringrules",
        ];
        assert_eq!(names, kinds.map(|kind| format!("{kind}.twinprobe.dev")));
        let spec = |at: usize| {
            definitions[at]
                .pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec")
                .unwrap()
        };
        assert_eq!(
            spec(1)["x-kubernetes-validations"][0]["rule"],
            "self == oldSelf"
        );
        assert_eq!(
            spec(0)["properties"]["rollout"]["properties"]["steps"]["x-kubernetes-validations"]
                .as_array()
                .unwrap()
                .len(),
            3
        );
        assert_eq!(
            spec(0)["properties"]["config"]["x-kubernetes-preserve-unknown-fields"],
            true
        );
        assert!(!definitions_yaml().unwrap().contains("format: uint"));
    }
}
