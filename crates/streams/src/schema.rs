//! JSON Schema of the documents that receivers of messages get, made from the shapes of windows.

use serde_json::{Map, Value, json};
use twinprobe_ebpf_common::window::shape::{FieldContent, FieldShape, MetricShape, WindowShape};

/// The dialect of the schemas.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Returns the schema of the documents of windows with this shape. Documents may have further
/// members: later versions of daemons add some.
pub fn document(probe: &str, shape: &WindowShape) -> Value {
    let mut directions = Map::new();
    for metric in &shape.metrics {
        let direction = directions
            .entry(metric.direction.name())
            .or_insert_with(|| object(Map::new()));
        direction["properties"][&metric.name] = metric_schema(metric);
        if let Some(required) = direction["required"].as_array_mut() {
            required.push(json!(metric.name));
        }
    }
    let required: Vec<&String> = directions.keys().collect();
    let required = json!(
        ["node", "instance", "probe", "window"]
            .into_iter()
            .chain(required.into_iter().map(|name| &**name))
            .collect::<Vec<&str>>()
    );
    let time = || json!({ "type": "string", "format": "date-time" });
    let whole = || json!({ "type": "integer", "minimum": 0 });
    let mut properties = json!({
        "node": { "type": "string" },
        "instance": { "type": "string", "description": "From the creation of the probe to its removal." },
        "probe": { "const": probe },
        "window": {
            "type": "object",
            "required": ["seq", "start", "end", "duration_ns"],
            "properties": { "seq": { "type": "integer", "minimum": 1 }, "start": time(), "end": time(),
                            "duration_ns": whole(), "lost_windows": whole() },
        },
    });
    if let Some(properties) = properties.as_object_mut() {
        properties.extend(directions);
    }
    json!({
        "$schema": DIALECT,
        "$id": format!("urn:twinprobe:shape:{}", shape.digest),
        "title": format!("Windows of the probe {probe}"),
        "type": "object",
        "required": required,
        "properties": properties,
    })
}

fn metric_schema(metric: &MetricShape) -> Value {
    let value = field(&metric.value);
    let value = if metric.per_cpu {
        json!({ "type": "array", "description": "A value of each CPU.", "items": value })
    } else {
        value
    };
    let mut entries = entry(metric.key.as_ref(), value);
    if metric.names {
        let owner = json!({ "type": "object", "additionalProperties": { "type": "string" } });
        entries["properties"]["names"] = json!({ "type": "object", "additionalProperties": owner });
    }
    let mut schema = json!({
        "type": "object",
        "required": ["map", "type", "entries"],
        "properties": {
            "map": { "const": metric.map },
            "type": { "const": metric.kind },
            "entries": { "type": "array", "items": entries },
        },
    });
    if !metric.help.is_empty() {
        schema["description"] = json!(metric.help);
    }
    schema
}

fn entry(key: Option<&FieldShape>, value: Value) -> Value {
    let (mut properties, mut required) = (Map::new(), vec!["value"]);
    if let Some(key) = key {
        properties.insert("key".to_owned(), field(key));
        required.insert(0, "key");
    }
    properties.insert("value".to_owned(), value);
    json!({ "type": "object", "required": required, "properties": properties })
}

/// Returns the schema of an object that must have all of its members.
fn object(properties: Map<String, Value>) -> Value {
    let mut schema = json!({ "type": "object", "required": properties.keys().collect::<Vec<_>>() });
    schema["properties"] = Value::Object(properties);
    schema
}

fn field(field: &FieldShape) -> Value {
    let mut schema = content(&field.content);
    if let Some(unit) = &field.unit {
        schema["description"] = json!(format!("In {unit}."));
    }
    schema
}

fn content(content: &FieldContent) -> Value {
    match content {
        FieldContent::Unsigned { bits } => {
            let most = 1_u64.checked_shl(*bits).map_or(u64::MAX, |above| above - 1);
            json!({ "type": "integer", "minimum": 0, "maximum": most })
        }
        FieldContent::Signed { bits } => {
            let most = i64::MAX
                .checked_shr(64_u32.saturating_sub(*bits))
                .unwrap_or_default();
            json!({ "type": "integer", "minimum": -most - 1, "maximum": most })
        }
        FieldContent::Decimal { signed: false } => json!({ "type": "integer", "minimum": 0 }),
        FieldContent::Decimal { signed: true } => json!({ "type": "integer" }),
        // JSON has no NaN and no infinity: they are null.
        FieldContent::Float { .. } => json!({ "type": ["number", "null"] }),
        FieldContent::Bool => json!({ "type": "boolean" }),
        FieldContent::Hex { size } => {
            json!({ "type": "string", "pattern": format!("^0x[0-9a-f]{{0,{}}}$", 2 * size) })
        }
        FieldContent::Text { .. } | FieldContent::Ip | FieldContent::Mac | FieldContent::Prefix => {
            json!({ "type": "string" })
        }
        FieldContent::Ipv4 => json!({ "type": "string", "format": "ipv4" }),
        FieldContent::Time => {
            json!({ "anyOf": [{ "type": "string", "format": "date-time" }, { "type": "integer" }] })
        }
        FieldContent::Interface => json!({ "type": ["string", "integer"] }),
        FieldContent::Name { names } => {
            let names: Vec<&str> = names.iter().map(|name| &*name.name).collect();
            json!({ "anyOf": [{ "enum": names }, { "type": "integer" }] })
        }
        FieldContent::Flags { flags } => {
            let names = flags.join("|");
            let names =
                json!({ "type": "string", "pattern": format!("^({names})([|]({names}))*$") });
            json!({ "anyOf": [names, { "type": "integer" }] })
        }
        FieldContent::Struct { fields } => object(
            fields
                .iter()
                .map(|member| (member.name.clone(), field(member)))
                .collect(),
        ),
        FieldContent::Array { len, element } => {
            json!({ "type": "array", "maxItems": len, "items": field(element) })
        }
        FieldContent::Entries { key, value } => {
            let items = entry(key.as_deref(), field(value));
            let entries = json!({ "type": "array", "items": items });
            json!({ "type": "object", "required": ["entries"], "properties": { "entries": entries } })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_a_schema() {
        let shape: WindowShape = serde_json::from_value(json!({ "digest": "4f", "metrics": [{
            "direction": "ingress", "name": "flows", "map": "m", "type": "percpu_hash", "reading": "window", "per_cpu": true,
            "key": { "type": "struct", "fields": [
                { "name": "src", "type": "ipv4" }, { "name": "port", "type": "unsigned", "bits": 16 }] },
            "value": { "type": "signed", "bits": 8, "unit": "bytes" },
        }] }))
        .unwrap();
        let schema = document("p", &shape);
        assert_eq!(
            (&schema["$id"], &schema["properties"]["probe"]),
            (&json!("urn:twinprobe:shape:4f"), &json!({ "const": "p" }))
        );
        assert_eq!(
            schema["required"],
            json!(["node", "instance", "probe", "window", "ingress"])
        );
        let metric = &schema["properties"]["ingress"]["properties"]["flows"];
        let entry = &metric["properties"]["entries"]["items"];
        assert_eq!(entry["required"], json!(["key", "value"]));
        let key = &entry["properties"]["key"];
        assert_eq!(
            (&key["required"], &key["properties"]["port"]["maximum"]),
            (&json!(["src", "port"]), &json!(65_535))
        );
        let value = json!({ "type": "integer", "minimum": -128, "maximum": 127, "description": "In bytes." });
        assert_eq!(entry["properties"]["value"]["items"], value);
    }
}
