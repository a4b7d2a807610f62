//! Data-plane configurations of Polycube's dynmon.

use serde_json::{Map, Value, json};

use super::converted::{ConvertError, Converted, Wishes, probe_name, text};
use super::distinct::{self, DistinctLabels};

/// The path of each direction in a data-plane configuration.
const PATHS: [(&str, &str); 2] = [("ingress", "ingress-path"), ("egress", "egress-path")];
/// The place of the data plane in the configuration of a cube.
const DATA_PLANES: [&str; 2] = ["dataplane-config", "dataplane"];

/// Returns the data plane in a configuration of dynmon. The configuration is a data plane, or that
/// of a cube which contains a data plane.
pub fn data_plane(object: &Map<String, Value>) -> Option<&Map<String, Value>> {
    let has_path =
        |object: &Map<String, Value>| PATHS.iter().any(|(_, path)| object.contains_key(*path));
    let inside = DATA_PLANES
        .iter()
        .filter_map(|name| object.get(*name)?.as_object());
    [object]
        .into_iter()
        .chain(inside)
        .find(|object| has_path(object))
}

/// Adds the probe of a data plane in the configuration `cube`.
pub fn convert(
    cube: &Map<String, Value>,
    data_plane: &Map<String, Value>,
    wishes: &Wishes,
    converted: &mut Converted,
) -> Result<(), ConvertError> {
    let kind = text(cube, "type", "")?.map(str::to_ascii_uppercase);
    let mut labels = Vec::new();
    let (mut directions, mut title) = (Vec::new(), None);
    for (direction, path) in PATHS {
        let Some(section) = data_plane.get(path).filter(|section| !section.is_null()) else {
            continue;
        };
        let section = section
            .as_object()
            .ok_or_else(|| ConvertError::field(path, "is not an object"))?;
        let Some(code) = text(section, "code", &format!("{path}."))? else {
            continue;
        };
        title = title.or(text(section, "name", &format!("{path}."))?);
        let begin = labels.len();
        let mut metrics = metrics(section, path, &mut labels, converted)?;
        distinct::rename(&mut metrics, &mut labels[begin..], converted);
        let kind = kind.as_deref().filter(|_| direction == "ingress");
        directions.push((direction, configured(code, &metrics, kind)));
    }
    if directions.is_empty() {
        return Ok(());
    }
    let cube_name = text(cube, "name", "")?;
    let name = wishes
        .name
        .clone()
        .or_else(|| cube_name.or(title).map(probe_name));
    let interface = wishes.interface.as_deref().or(text(cube, "parent", "")?);
    let interface = interface.ok_or_else(|| {
        ConvertError::field(
            "interface",
            "the configuration names none; give one by --interface",
        )
    })?;
    let mut probe =
        json!({ "name": name.unwrap_or_else(|| "dynmon".to_owned()), "interface": interface });
    if let Some(labels) = labels_of_all(&labels, converted) {
        probe["labels"] = labels;
    }
    for (direction, configured) in directions {
        probe[direction] = configured;
    }
    converted.probes.push(probe);
    Ok(())
}

/// Returns a direction of the probe: its code, its metrics, and the hook that the type of the cube
/// stands for. Without a type the hook is tc.
fn configured(code: &str, metrics: &[Value], kind: Option<&str>) -> Value {
    let mut configured =
        json!({ "hook": "tc", "dialect": "bcc", "source": code, "metrics": metrics });
    if let Some(xdp) = kind.filter(|kind| kind.contains("XDP")) {
        configured["hook"] = json!("xdp");
        configured["mode"] = json!(if xdp.contains("DRV") {
            "native"
        } else {
            "generic"
        });
    }
    configured
}

fn metrics(
    section: &Map<String, Value>,
    path: &str,
    labels: &mut Vec<(String, DistinctLabels)>,
    converted: &mut Converted,
) -> Result<Vec<Value>, ConvertError> {
    let configs = match section.get("metric-configs") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(configs)) => configs,
        Some(_) => {
            return Err(ConvertError::field(
                format!("{path}.metric-configs"),
                "is not a list",
            ));
        }
    };
    let mut metrics = Vec::new();
    for (number, config) in configs.iter().enumerate() {
        let at = format!("{path}.metric-configs[{number}]");
        let config = config
            .as_object()
            .ok_or_else(|| ConvertError::field(&at, "is not an object"))?;
        let inside = format!("{at}.");
        let map = text(config, "map-name", &inside)?;
        let map = map.ok_or_else(|| ConvertError::field(&at, "has no map-name"))?;
        let name = text(config, "name", &inside)?.unwrap_or(map);
        let mut metric = json!({ "name": name, "map": map });
        let object = |name: &str| config.get(name).and_then(Value::as_object);
        let flag = |name: &str| object("extraction-options")?.get(name)?.as_bool();
        for (theirs, ours) in [("swap-on-read", "snapshot"), ("empty-on-read", "init")] {
            if flag(theirs) == Some(true) {
                metric[ours] = json!(true);
            }
        }
        let own = match object("open-metrics-metadata") {
            Some(metadata) => describe(metadata, &at, name, &mut metric, converted)?,
            None => DistinctLabels::new(),
        };
        labels.push((name.to_owned(), own));
        metrics.push(metric);
    }
    Ok(metrics)
}

/// Adds the description of the metric `name` from its metadata, and returns the labels of the
/// metric. `at` is the place of its configuration.
fn describe(
    metadata: &Map<String, Value>,
    at: &str,
    name: &str,
    metric: &mut Value,
    converted: &mut Converted,
) -> Result<DistinctLabels, ConvertError> {
    let inside = format!("{at}.open-metrics-metadata.");
    if let Some(help) = text(metadata, "help", &inside)? {
        metric["help"] = json!(help);
    }
    let kind = text(metadata, "type", &inside)?.map(str::to_ascii_lowercase);
    if let Some(kind) = kind.filter(|kind| kind != "untyped" && kind != "gauge") {
        converted.notes.push(format!(
            "{name}: type {kind} is left out: a metric is a counter in OpenMetrics if it has snapshot without init, a \
             histogram if its map has btf_decl_tag(\"histogram\")"
        ));
    }
    let list = metadata
        .get("labels")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let label = |label: &Value| {
        Some((
            label.get("name")?.as_str()?.to_owned(),
            label.get("value")?.as_str()?.to_owned(),
        ))
    };
    Ok(list.filter_map(label).collect())
}

/// Returns the common labels of all metrics, as labels of the probe. Other labels are left out.
fn labels_of_all(labels: &[(String, DistinctLabels)], converted: &mut Converted) -> Option<Value> {
    let (_, first) = labels.first()?;
    let common: DistinctLabels = first
        .iter()
        .filter(|(name, value)| {
            labels
                .iter()
                .all(|(_, labels)| labels.get(*name) == Some(value))
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    for (metric, labels) in labels {
        let own: Vec<&str> = labels
            .keys()
            .filter(|name| !common.contains_key(*name))
            .map(String::as_str)
            .collect();
        if !own.is_empty() {
            let own = own.join(", ");
            converted.notes.push(format!(
                "{metric}: the labels {own} are left out: labels are for all metrics of a probe; make the metric a probe of its own"
            ));
        }
    }
    (!common.is_empty()).then(|| json!(common))
}
