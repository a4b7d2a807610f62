//! The conversion of a file, whichever monitor it is for.

use serde_json::Value;

use super::converted::{ConvertError, Converted, Wishes};
use super::{dechainy, dynmon};

/// Converts a data-plane configuration of Polycube's dynmon, or a configuration of DeChainy. The sources are taken over as they
/// are.
///
/// # Errors
///
/// Fails if the file is for neither, if a field has a shape that it can't have there, or if there is nothing to convert.
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
    if converted.probes.is_empty() { Err(ConvertError::Empty) } else { Ok(converted) }
}
