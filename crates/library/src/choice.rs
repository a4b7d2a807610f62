//! The choices that a configuration makes for its source.

use std::collections::BTreeMap;

use serde_json::Value;
use twinprobe_api::{ConfigDocument, DirectionDocument, FleetProbeSpec, RuleChange};

use crate::knobs::{self, Knob};
use crate::library::library_probe;

/// The error for a choice that a source does not offer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    #[error("{name}: {probe} has no such macro; {known}")]
    Define {
        probe: String,
        name: String,
        known: String,
    },
    #[error("{name}={value}: {value} is not a number, but the default {default} is{about}")]
    Number {
        name: String,
        value: String,
        default: String,
        about: String,
    },
    #[error("{name}: {probe} has no such variable; {known}")]
    Variable {
        probe: String,
        name: String,
        known: String,
    },
    #[error("{0} is not a whole number; with sample: N the probe sees one packet in N")]
    Sample(Value),
}

/// Defines macros and sets initial values of variables, each in the directions that have it.
pub fn choose(
    config: &mut ConfigDocument,
    defines: &BTreeMap<String, String>,
    variables: &BTreeMap<String, Value>,
) -> Result<(), ChoiceError> {
    let probe = config.name.clone().unwrap_or_default();
    for (name, value) in defines {
        define(&probe, config, name, value)?;
    }
    for (name, value) in variables {
        give(&probe, config, name, value)?;
    }
    Ok(())
}

/// Returns the probe of the library that a fleet's probe names, with its choices. The error is for
/// people.
pub fn fleet_probe(name: &str, spec: &FleetProbeSpec) -> Result<ConfigDocument, String> {
    let mut config = library_probe(name).map_err(|error| error.to_string())?;
    choose(&mut config, &spec.defines, &spec.variables).map_err(|error| error.to_string())?;
    Ok(config)
}

/// Returns a configuration with the values of a rule.
pub fn changed(
    config: &ConfigDocument,
    change: &RuleChange,
) -> Result<ConfigDocument, ChoiceError> {
    let mut config = config.clone();
    config.name = Some(change.name.clone());
    choose(&mut config, &change.defines, &change.variables)?;
    if let Some(sample) = &change.sample {
        let sample = sample
            .as_u64()
            .ok_or_else(|| ChoiceError::Sample(sample.clone()))?;
        directions(&mut config).for_each(|direction| direction.sample = Some(sample));
    }
    Ok(config)
}

/// The directions of a configuration.
fn directions(config: &mut ConfigDocument) -> impl Iterator<Item = &mut DirectionDocument> {
    [&mut config.ingress, &mut config.egress]
        .into_iter()
        .flatten()
}

/// The texts of a direction: its source and the files beside it.
fn texts(direction: &DirectionDocument) -> impl Iterator<Item = &str> {
    let beside = direction.files.iter().flat_map(BTreeMap::values);
    direction.source.iter().chain(beside).map(String::as_str)
}

/// Defines a macro in each direction that has it.
pub fn define(
    probe: &str,
    config: &mut ConfigDocument,
    name: &str,
    value: &str,
) -> Result<(), ChoiceError> {
    if let Some(error) =
        directions(config).find_map(|direction| not_a_number(direction, name, value))
    {
        return Err(error);
    }
    let mut is_known = false;
    let mut known: Vec<String> = Vec::new();
    for direction in directions(config) {
        let has = |text: &str| knobs::mentions(text, name) && !knobs::is_fixed(text, name);
        if direction.source.is_some()
            && (knobs::OF_THE_HEADER.contains(&name) || texts(direction).any(has))
        {
            is_known = true;
            direction
                .defines
                .get_or_insert_default()
                .insert(name.to_owned(), value.to_owned());
        }
        known.extend(names(texts(direction).flat_map(knobs::defines)));
    }
    let is_compiled = directions(config).any(|direction| direction.object.is_some());
    let none = match is_compiled {
        true => "it is an object, whose macros are fixed: deploy its source, or give it variables",
        false => "its source leaves no macro open",
    };
    let known = listed("it has", known, none);
    if is_known {
        Ok(())
    } else {
        Err(ChoiceError::Define {
            probe: probe.to_owned(),
            name: name.to_owned(),
            known,
        })
    }
}

/// Refuses values such as `2s` for a macro whose default is a number: the compiler would complain
/// at each place of its use.
fn not_a_number(direction: &DirectionDocument, name: &str, value: &str) -> Option<ChoiceError> {
    let knob = texts(direction)
        .flat_map(knobs::defines)
        .find(|knob| knob.name == name)?;
    let default = knob.default.filter(|default| is_integer(default))?;
    // Expressions such as `1 << 10`, and names, are left to the compiler.
    let is_word = value.starts_with(|c: char| c.is_ascii_digit())
        && value.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
    let about = knob
        .about
        .map(|about| format!(" ({name}: {about})"))
        .unwrap_or_default();
    let (name, value) = (name.to_owned(), value.to_owned());
    (is_word && !is_integer(&value)).then_some(ChoiceError::Number {
        name,
        value,
        default,
        about,
    })
}

/// Tells whether a text is an integer in C.
fn is_integer(text: &str) -> bool {
    let text = text.trim_end_matches(['u', 'U', 'l', 'L']);
    let (digits, base) = match text.get(..2) {
        Some("0x" | "0X") => (&text[2..], 16),
        Some("0b" | "0B") => (&text[2..], 2),
        _ => (text, 10),
    };
    !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(base))
}

/// Gives a variable its initial value in each direction that has it. The daemon knows the variables
/// of an object.
pub fn give(
    probe: &str,
    config: &mut ConfigDocument,
    name: &str,
    value: &Value,
) -> Result<(), ChoiceError> {
    let mut is_known = false;
    let mut known: Vec<String> = Vec::new();
    for direction in directions(config) {
        if direction.object.is_some() || texts(direction).any(|text| knobs::mentions(text, name)) {
            is_known = true;
            direction
                .variables
                .get_or_insert_default()
                .insert(name.to_owned(), value.clone());
        }
        known.extend(names(texts(direction).flat_map(knobs::variables)));
    }
    let known = listed("it has", known, "its source has no variables");
    if is_known {
        Ok(())
    } else {
        Err(ChoiceError::Variable {
            probe: probe.to_owned(),
            name: name.to_owned(),
            known,
        })
    }
}

fn names(knobs: impl Iterator<Item = Knob>) -> impl Iterator<Item = String> {
    knobs.map(|knob| match knob.default {
        Some(default) => format!("{} (default {default})", knob.name),
        None => knob.name,
    })
}

fn listed(head: &str, mut known: Vec<String>, none: &str) -> String {
    known.sort();
    known.dedup();
    if known.is_empty() {
        none.to_owned()
    } else {
        format!("{head} {}", known.join(", "))
    }
}
