//! Changes of a configuration by options of the command line, so that a probe needs no file of its
//! own.

use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use twinprobe_library::{ChoiceError, define, give};

use crate::files::files::ProbeFile;

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Changes of the configuration")]
pub struct Adjustments {
    /// Give the probe this name instead of its own
    #[arg(long = "name", value_name = "NAME")]
    called: Option<String>,
    /// Give a field of the configuration a value, as `window.retain=64` or
    /// `ingress.metrics.NAME.max_series=100`. Repeatable
    #[arg(long, value_name = "FIELD=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Define a macro of the source, as `NAMES=1024`; `twinprobe probes NAME` lists the macros.
    /// Repeatable
    #[arg(long, value_name = "X=Y", value_parser = pair)]
    define: Vec<(String, String)>,
    /// Give a global variable of the program an initial value, written as in documents. Repeatable
    #[arg(long, value_name = "X=Y", value_parser = pair)]
    var: Vec<(String, String)>,
    /// Close a window after each such time, as 500ms, 10s or 1m
    #[arg(long, value_name = "TIME")]
    interval: Option<String>,
    /// Remove the probe after this time, as 10m, unless it is applied again
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
}

/// A change that does not fit the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdjustmentError {
    #[error("--name {name} is for one probe, but there are {total}")]
    OneName { name: String, total: usize },
    #[error("--set {field}={value}: {problem}")]
    Set {
        field: String,
        value: String,
        problem: String,
    },
    #[error("--define {0}")]
    Define(#[source] ChoiceError),
    #[error("--var {0}")]
    Variable(#[source] ChoiceError),
}

/// Reads `NAME=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{text} has no value; write NAME=VALUE")),
    }
}

impl Adjustments {
    /// Changes the configurations. A mistake in one changes nothing anywhere, because nothing has
    /// been sent yet.
    pub fn apply(&self, probes: &mut [ProbeFile]) -> Result<(), AdjustmentError> {
        if let Some(name) = &self.called {
            let total = probes.len();
            let [probe] = &mut *probes else {
                return Err(AdjustmentError::OneName {
                    name: name.clone(),
                    total,
                });
            };
            probe.name.clone_from(name);
            probe.config.name = Some(name.clone());
        }
        for probe in probes {
            self.apply_to(probe)?;
        }
        Ok(())
    }

    fn apply_to(&self, probe: &mut ProbeFile) -> Result<(), AdjustmentError> {
        let ProbeFile { name, config, .. } = probe;
        for (field, value) in &self.set {
            *config = set(config, field, value)?;
        }
        for (macro_name, value) in &self.define {
            define(name, config, macro_name, value).map_err(AdjustmentError::Define)?;
        }
        for (variable, value) in &self.var {
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value.as_str()));
            give(name, config, variable, &value).map_err(AdjustmentError::Variable)?;
        }
        if let Some(interval) = &self.interval {
            config.window.get_or_insert_default().interval = Some(interval.clone());
        }
        if let Some(expires) = &self.expires {
            config.expires = Some(expires.clone());
        }
        Ok(())
    }
}

/// Returns a document with another value of a field. The value is read as JSON. If it is not JSON,
/// or if the field refuses the JSON, the value is a text.
pub fn set<T: Serialize + DeserializeOwned>(
    config: &T,
    field: &str,
    value: &str,
) -> Result<T, AdjustmentError> {
    let failed = |problem| AdjustmentError::Set {
        field: field.to_owned(),
        value: value.to_owned(),
        problem,
    };
    let document = serde_json::to_value(config).map_err(|error| failed(error.to_string()))?;
    let with = |value: Value| {
        let mut document = document.clone();
        *place(&mut document, field)? = value;
        serde_path_to_error::deserialize(document).map_err(|error| error.into_inner().to_string())
    };
    let text = Value::from(value);
    let parsed = serde_json::from_str(value)
        .ok()
        .filter(|parsed: &Value| *parsed != text);
    let Some(parsed) = parsed else {
        return with(text).map_err(failed);
    };
    with(parsed)
        .or_else(|problem| with(text).map_err(|_| problem))
        .map_err(failed)
}

/// Finds a field by its path. A step into a list of metrics is a metric's name or number. Objects
/// that are missing on the way are made.
fn place<'a>(document: &'a mut Value, path: &str) -> Result<&'a mut Value, String> {
    let mut at = document;
    for step in path.split('.') {
        if step.is_empty() {
            return Err("a field is a path such as window.retain".to_owned());
        }
        at = match at {
            Value::Array(items) => {
                let known: Vec<String> = items
                    .iter()
                    .filter_map(|item| item["name"].as_str().map(str::to_owned))
                    .collect();
                let found = known
                    .iter()
                    .position(|name| name == step)
                    .or_else(|| step.parse().ok());
                let missing = || format!("there is no {step}; there are {}", known.join(", "));
                found
                    .and_then(|found| items.get_mut(found))
                    .ok_or_else(missing)?
            }
            Value::Object(fields) => fields.entry(step).or_insert(Value::Null),
            other => {
                if !other.is_null() {
                    return Err(format!("{other} has no field {step}"));
                }
                *other = Value::Object(serde_json::Map::new());
                &mut other[step]
            }
        };
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn probe() -> ProbeFile {
        let source = "#ifndef PORT\n#define PORT 53\n#endif\n#define FIXED 1\nconst volatile int limit = 5;\n";
        let config = json!({ "name": "p", "interface": "ux0",
            "ingress": { "source": source, "metrics": [{ "name": "m", "map": "a" }] },
            "egress": { "source": "int other;\n" } });
        ProbeFile::new("p".to_owned(), serde_json::from_value(config).unwrap())
    }

    fn changed(change: impl FnOnce(&mut Adjustments)) -> Result<Value, String> {
        let (mut adjustments, mut probes) = (Adjustments::default(), [probe()]);
        change(&mut adjustments);
        adjustments
            .apply(&mut probes)
            .map_err(|error| error.to_string())?;
        Ok(serde_json::to_value(&probes[0].config).unwrap())
    }

    fn with_set(field: &str, value: &str) -> Result<Value, String> {
        changed(|changes| changes.set = vec![(field.to_owned(), value.to_owned())])
    }

    #[test]
    fn fields_are_set_by_their_paths() {
        assert_eq!(
            with_set("window.retain", "64").unwrap()["window"],
            json!({ "retain": 64 })
        );
        assert_eq!(
            with_set("ingress.metrics.m.max_series", "7").unwrap()["ingress"]["metrics"][0]["max_series"],
            7
        );
        assert_eq!(
            with_set("ingress.metrics.0.agg", "sum").unwrap()["ingress"]["metrics"][0]["agg"],
            "sum"
        );
        assert_eq!(
            with_set("labels.rack", "7").unwrap()["labels"]["rack"],
            "7",
            "a label is a text"
        );
        assert_eq!(with_set("interface", "ux1").unwrap()["interface"], "ux1");
    }

    #[test]
    fn fields_that_are_not_there_are_told_with_those_that_are() {
        let refused = |field: &str, value: &str| with_set(field, value).unwrap_err();
        let text = refused("window.retane", "64");
        assert!(
            text.starts_with(
                "--set window.retane=64: unknown field `retane`, expected one of `interval`"
            ),
            "{text}"
        );
        assert!(refused("hook", "tc").contains("unknown field `hook`"));
        assert_eq!(
            refused("ingress.metrics.x.agg", "sum"),
            "--set ingress.metrics.x.agg=sum: there is no x; there are m"
        );
        assert!(
            refused("window.retain", "many").contains("invalid type"),
            "{}",
            refused("window.retain", "many")
        );
        assert!(refused("interface.a", "b").contains("has no field"));
    }

    #[test]
    fn macros_and_variables_go_to_the_directions_that_have_them() {
        let define = |name: &str| {
            changed(|changes| changes.define = vec![(name.to_owned(), "9".to_owned())])
        };
        let config = define("PORT").unwrap();
        assert_eq!(
            (
                &config["ingress"]["defines"],
                config["egress"].get("defines")
            ),
            (&json!({ "PORT": "9" }), None)
        );
        assert_eq!(
            define("TP_TAGS").unwrap()["egress"]["defines"]["TP_TAGS"],
            "9"
        );
        for wrong in ["PROT", "FIXED"] {
            let expected =
                format!("--define {wrong}: p has no such macro; it has PORT (default 53)");
            assert_eq!(define(wrong).unwrap_err(), expected);
        }
        for (value, expected) in [
            ("5353", None),
            ("0x35", None),
            ("5353u", None),
            ("(50 + 3)", None),
            ("OTHER", None),
            (
                "5s",
                Some("--define PORT=5s: 5s is not a number, but the default 53 is"),
            ),
            (
                "0.5",
                Some("--define PORT=0.5: 0.5 is not a number, but the default 53 is"),
            ),
        ] {
            let defined =
                changed(|changes| changes.define = vec![("PORT".to_owned(), value.to_owned())]);
            assert_eq!(defined.err().as_deref(), expected, "{value}");
        }
        let var =
            |name: &str| changed(|changes| changes.var = vec![(name.to_owned(), "9".to_owned())]);
        assert_eq!(
            var("limit").unwrap()["ingress"]["variables"],
            json!({ "limit": 9 })
        );
        let expected = "--var limits: p has no such variable; it has limit (default 5), other";
        assert_eq!(var("limits").unwrap_err(), expected);
    }

    #[test]
    fn names_times_and_leases_are_short_forms() {
        let config = changed(|changes| {
            (changes.called, changes.interval) = (Some("q".to_owned()), Some("10s".to_owned()));
            changes.expires = Some("10m".to_owned());
        });
        let config = config.unwrap();
        assert_eq!(
            [
                &config["name"],
                &config["window"]["interval"],
                &config["expires"]
            ],
            ["q", "10s", "10m"]
        );
        let several = Adjustments {
            called: Some("q".to_owned()),
            ..Adjustments::default()
        };
        let error = several.apply(&mut [probe(), probe()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--name q is for one probe, but there are 2"
        );
        assert!(pair("a").is_err() && pair("=b").is_err() && pair("a=").is_ok());
    }
}
