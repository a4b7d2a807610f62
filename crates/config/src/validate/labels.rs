//! The rules of `labels`.

use std::collections::BTreeMap;

use twinprobe_api::ConfigDocument;

use crate::validate::findings::Findings;
use crate::validate::names;

const MOST_LABELS: usize = 32;
/// The limits in bytes of a label's name, and of its value.
const NAME_LIMIT: usize = 128;
const VALUE_LIMIT: usize = 1024;
/// The names of labels that samples already have, or that have another meaning in OpenMetrics and
/// the documents.
const RESERVED: [&str; 7] = [
    "probe",
    "direction",
    "node",
    "instance",
    "cpu",
    "le",
    "quantile",
];

/// Checks the labels and adds their mistakes to `findings`.
pub fn check(labels: &BTreeMap<String, String>, findings: &mut Findings) {
    if labels.len() > MOST_LABELS {
        let message = format!(
            "{} labels are too many; the limit is {MOST_LABELS}",
            labels.len()
        );
        findings.add("labels", message);
        return;
    }
    for (name, value) in labels {
        if let Err(message) = check_name(name) {
            findings.add("labels", message);
            continue;
        }
        let field = format!("labels.{name}");
        if value.len() > VALUE_LIMIT {
            let size = value.len();
            findings.add(
                &*field,
                format!("the value has {size} bytes; the limit is {VALUE_LIMIT}"),
            );
        }
        if let Some(control) = value
            .chars()
            .find(|c| c.is_control() && !matches!(c, '\n' | '\t'))
        {
            let message =
                format!("the value has the control character {control:?}, which XML can't write");
            findings.add(field, message);
        }
    }
}

/// Checks that the keys of metrics have other labels than the probe.
pub fn check_keys(document: &ConfigDocument, findings: &mut Findings) {
    let Some(labels) = &document.labels else {
        return;
    };
    for (at, direction) in [("ingress", &document.ingress), ("egress", &document.egress)] {
        let metrics = direction
            .iter()
            .flat_map(|direction| direction.metrics.iter().flatten());
        for (index, metric) in metrics.enumerate() {
            if let Some(label) = metric
                .key_label
                .as_ref()
                .filter(|label| labels.contains_key(*label))
            {
                let message = format!("the probe has a label {label} already; choose another name");
                findings.add(format!("{at}.metrics[{index}].key_label"), message);
            }
        }
    }
}

/// Checks the name of a label that the configuration chooses.
pub fn check_name(name: &str) -> Result<(), String> {
    let quoted = names::quote(name);
    if !names::is_c_identifier(name) || name.starts_with("__") {
        let rule = "letters, digits and '_' are allowed, no digit first, and no two '_' first";
        return Err(format!("{quoted} is not a name of a label; {rule}"));
    }
    if name.len() > NAME_LIMIT {
        let size = name.len();
        return Err(format!(
            "the name {quoted} has {size} bytes; the limit is {NAME_LIMIT}"
        ));
    }
    if RESERVED.contains(&name) || is_index(name) {
        let reserved = RESERVED.join(", ");
        return Err(format!(
            "metrics already have the label {quoted}; {reserved}, index, index1, ... are reserved: choose \
             another name"
        ));
    }
    Ok(())
}

/// Tells whether a name is the label of an array's element.
fn is_index(name: &str) -> bool {
    name.strip_prefix("index")
        .is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
}
