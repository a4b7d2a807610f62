//! Finds out which monitor a file is for, and converts it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::converted::{ConvertError, Converted, Wishes};
use super::{dechainy, dynmon};

/// Converts a data-plane configuration of Polycube's dynmon, or a configuration of DeChainy.
/// Sources stay as they are.
///
/// # Errors
///
/// Fails if the file is for neither monitor, if a field has an impossible shape, or if there is
/// nothing to convert.
pub fn convert(text: &str, wishes: &Wishes) -> Result<Converted, ConvertError> {
    let document: Value = serde_json::from_str(text)?;
    let mut converted = Converted::default();
    let documents = match &document {
        Value::Array(list) => list.iter().collect(),
        one => vec![one],
    };
    for document in documents {
        let object = document.as_object().ok_or(ConvertError::Unknown)?;
        if let Some(path) = dynmon::data_plane(object) {
            dynmon::convert(object, path, wishes, &mut converted)?;
        } else if dechainy::is_one(object) {
            dechainy::convert(object, wishes, &mut converted)?;
        } else {
            return Err(ConvertError::Unknown);
        }
    }
    name_apart(&mut converted);
    if converted.probes.is_empty() {
        Err(ConvertError::Empty)
    } else {
        Ok(converted)
    }
}

/// Adds a number to the name of a probe if an earlier probe has the same name.
fn name_apart(converted: &mut Converted) {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for probe in &mut converted.probes {
        let Some(name) = probe["name"].as_str().map(str::to_owned) else {
            continue;
        };
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let new = std::iter::once(name.clone())
            .chain(numbered)
            .find(|new| !names.contains(new));
        let new = new.unwrap_or_else(|| name.clone());
        if new != name {
            converted.notes.push(format!(
                "{name}: another probe has this name; this one is {new}"
            ));
            probe["name"] = new.as_str().into();
        }
        names.insert(new);
    }
}
