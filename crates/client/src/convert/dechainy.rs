//! Configurations of DeChainy: its startup file, or one of its probes.

use serde_json::{Map, Value, json};

use super::converted::{ConvertError, Converted, Wishes, probe_name, text};
use super::declared::{Declared, declared};

const DIRECTIONS: [&str; 2] = ["ingress", "egress"];
/// The names and numbers that DeChainy gives to ways to attach, with the hook and the mode of
/// twinprobe for each.
const MODES: [(&str, &str, Option<&str>); 5] = [
    ("TC", "tc", None),
    ("XDP", "xdp", None),
    ("XDP_SKB", "xdp", Some("generic")),
    ("XDP_DRV", "xdp", Some("native")),
    ("XDP_HW", "xdp", Some("native")),
];
/// The number of XDP among BCC's types of programs.
const XDP: u64 = 6;
/// The levels of messages by their names in Python.
const LEVELS: [(&str, u64); 8] = [
    ("NOTSET", 0),
    ("DEBUG", 10),
    ("INFO", 20),
    ("WARN", 30),
    ("WARNING", 30),
    ("ERROR", 40),
    ("CRITICAL", 50),
    ("FATAL", 50),
];

/// Tells whether this is a configuration of DeChainy.
pub fn is_one(object: &Map<String, Value>) -> bool {
    let has = |name: &&str| object.contains_key(*name);
    ["probes", "clusters"].iter().any(has)
        || object.contains_key("interface") && DIRECTIONS.iter().any(has)
}

/// Adds the probes of a configuration, including the probes of its clusters.
pub fn convert(
    object: &Map<String, Value>,
    wishes: &Wishes,
    converted: &mut Converted,
) -> Result<(), ConvertError> {
    let lists = ["probes", "clusters"]
        .into_iter()
        .filter_map(|name| Some((name, object.get(name)?)));
    let lists: Vec<(&str, &Value)> = lists.collect();
    if lists.is_empty() {
        return probe(object, "", wishes, converted);
    }
    for (list, value) in lists {
        let members = value
            .as_array()
            .ok_or_else(|| ConvertError::field(list, "is not a list"))?;
        for (number, member) in members.iter().enumerate() {
            let at = format!("{list}[{number}]");
            let member = member
                .as_object()
                .ok_or_else(|| ConvertError::field(&at, "is not an object"))?;
            if list == "probes" {
                probe(member, &format!("{at}."), wishes, converted)?;
                continue;
            }
            let cluster = text(member, "name", &format!("{at}."))?.unwrap_or(&at);
            converted.notes.push(format!(
                "{cluster}: the probes of a cluster become separate probes"
            ));
            let inside = Map::from_iter([(
                "probes".to_owned(),
                member.get("probes").cloned().unwrap_or_default(),
            )]);
            convert(&inside, wishes, converted)?;
        }
    }
    Ok(())
}

fn probe(
    object: &Map<String, Value>,
    at: &str,
    wishes: &Wishes,
    converted: &mut Converted,
) -> Result<(), ConvertError> {
    let plugin = text(object, "plugin", at)?;
    let name = wishes
        .name
        .clone()
        .or(text(object, "name", at)?.map(probe_name));
    let name = name
        .or_else(|| plugin.map(probe_name))
        .unwrap_or_else(|| "dechainy".to_owned());
    let interface = wishes
        .interface
        .as_deref()
        .or(text(object, "interface", at)?);
    let interface = interface.ok_or_else(|| {
        ConvertError::field(
            format!("{at}interface"),
            "is missing; give one by --interface",
        )
    })?;
    let (hook, mode) = hook(object, at)?;
    let mut found = Vec::new();
    for direction in DIRECTIONS {
        found.extend(source(object, direction, at, &name, converted)?);
    }
    if found.is_empty() {
        let plugin = plugin.unwrap_or("a plugin");
        converted.notes.push(format!(
            "{name}: the configuration has no source, which is in {plugin} itself; add its ebpf.c as ingress"
        ));
        return Ok(());
    }
    let mut tables: Vec<Vec<Declared>> = found
        .iter()
        .map(|(_, source, _)| declared(source))
        .collect();
    if !tables
        .iter()
        .flatten()
        .any(|table| table.swap || table.empty || table.export)
    {
        converted.notes.push(format!(
            "{name}: no table has __attributes__, so every table is read as it is; leave out tables that no client reads, add \
             snapshot and init where a window is wanted"
        ));
        tables
            .iter_mut()
            .flatten()
            .for_each(|table| table.export = true);
    }
    let shared: Vec<&str> = match &tables[..] {
        [ingress, egress] => {
            let is_shared = |table: &&Declared| {
                egress
                    .iter()
                    .any(|other| other.name == table.name && (other.is_extern || table.is_extern))
            };
            ingress
                .iter()
                .filter(is_shared)
                .map(|table| table.name.as_str())
                .collect()
        }
        _ => Vec::new(),
    };
    let mut probe = json!({ "name": name, "interface": interface });
    if !shared.is_empty() {
        probe["shared_maps"] = json!(shared);
    }
    let mut resets = false;
    for (number, (direction, source, defines)) in found.iter().enumerate() {
        let mut configured = json!({ "hook": "tc", "dialect": "bcc", "source": source });
        if *direction == "ingress" {
            configured["hook"] = json!(hook);
            if let Some(mode) = mode {
                configured["mode"] = json!(mode);
            }
        }
        if !defines.is_empty() {
            configured["defines"] = json!(defines);
        }
        // Tables that both directions share are read once.
        let own = tables[number]
            .iter()
            .filter(|table| number == 0 || !shared.contains(&table.name.as_str()));
        let metrics: Vec<Value> = own
            .filter_map(|table| metric(table, &name, converted))
            .collect();
        resets |= metrics
            .iter()
            .any(|metric| metric.get("snapshot").or(metric.get("init")).is_some());
        configured["metrics"] = json!(metrics);
        probe[*direction] = configured;
    }
    if let Some(seconds) = object
        .get("time_window")
        .and_then(Value::as_f64)
        .filter(|_| resets)
    {
        probe["window"] = json!({ "interval": format!("{}ms", (seconds * 1000.0).round() as u64) });
    }
    for (field, instead) in [
        (
            "cp_function",
            "read GET /v1/probes/NAME/metrics or its windows, and act outside of the daemon",
        ),
        ("files", "copy the included files into the source"),
    ] {
        if object.get(field).is_some_and(|value| !value.is_null()) {
            converted
                .notes
                .push(format!("{name}: {field} is left out; {instead}"));
        }
    }
    converted.probes.push(probe);
    Ok(())
}

/// Returns our hook and mode for theirs.
fn hook(
    object: &Map<String, Value>,
    at: &str,
) -> Result<(&'static str, Option<&'static str>), ConvertError> {
    let mode = match object.get("mode") {
        None | Some(Value::Null) => return Ok(("tc", None)),
        Some(Value::Number(number)) => {
            let flags = object.get("flags").and_then(Value::as_u64).unwrap_or(0);
            let name = match (number.as_u64(), flags) {
                (Some(XDP), 2) => "XDP_SKB",
                (Some(XDP), 4) => "XDP_DRV",
                (Some(XDP), 8) => "XDP_HW",
                (Some(XDP), _) => "XDP",
                _ => "TC",
            };
            name.to_owned()
        }
        Some(Value::String(text)) => text.to_ascii_uppercase(),
        Some(_) => {
            return Err(ConvertError::field(
                format!("{at}mode"),
                "is neither a name nor a number",
            ));
        }
    };
    let known = MODES.into_iter().find(|(name, ..)| *name == mode);
    known.map(|(_, hook, mode)| (hook, mode)).ok_or_else(|| {
        ConvertError::field(
            format!("{at}mode"),
            format!("{mode} is unknown; it can be TC, XDP, XDP_SKB, XDP_DRV, XDP_HW"),
        )
    })
}

/// A direction with its source and its macros.
type MacroSource = (&'static str, String, Map<String, Value>);

fn source(
    object: &Map<String, Value>,
    direction: &'static str,
    at: &str,
    probe: &str,
    converted: &mut Converted,
) -> Result<Option<MacroSource>, ConvertError> {
    let (code, flags) = match object.get(direction) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(code)) => (Some(code.as_str()), None),
        Some(Value::Object(hook)) => (
            text(hook, "code", &format!("{at}{direction}."))?,
            hook.get("cflags"),
        ),
        Some(_) => {
            return Err(ConvertError::field(
                format!("{at}{direction}"),
                "is neither a source nor an object",
            ));
        }
    };
    let Some(code) = code.filter(|code| !code.trim().is_empty()) else {
        return Ok(None);
    };
    let mut defines = Map::new();
    let level = match object.get("log_level") {
        Some(Value::String(name)) => LEVELS
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, level)| *level),
        Some(level) => level.as_u64(),
        None => None,
    };
    if let Some(level) = level {
        defines.insert("LOG_LEVEL".to_owned(), json!(level.to_string()));
    }
    let flags = flags
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    for flag in flags {
        match flag
            .strip_prefix("-D")
            .map(|define| define.split_once('=').unwrap_or((define, "1")))
        {
            Some((name, value)) => drop(defines.insert(name.to_owned(), json!(value))),
            None => converted.notes.push(format!(
                "{probe}: the flag {flag} of {direction} is left out"
            )),
        }
    }
    Ok(Some((direction, code.to_owned(), defines)))
}

/// Returns the metric of a table that must be read or emptied.
fn metric(table: &Declared, probe: &str, converted: &mut Converted) -> Option<Value> {
    let mut metric = json!({ "name": table.name, "map": table.name });
    if table.has_events {
        converted.notes.push(format!(
            "{probe}: {} is read as events; add \"type\" with the struct that is sent, else they are shown in hex",
            table.name
        ));
        return Some(metric);
    }
    if !table.export && !table.empty {
        return None;
    }
    for (field, value, wanted) in [
        ("snapshot", true, table.swap),
        ("init", true, table.empty),
        ("export", false, !table.export),
    ] {
        if wanted {
            metric[field] = json!(value);
        }
    }
    Some(metric)
}
