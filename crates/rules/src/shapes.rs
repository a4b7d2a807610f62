//! The shapes of documents in tests, by the first entries of their metrics.

use serde_json::{Map, Value, json};
use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::window::shape::WindowShape;

/// Returns the shape of a test's document. A metric without entries has an example of an entry in
/// its field `like`.
pub fn shape(document: &Value) -> WindowShape {
    let of_direction = |direction: Direction| {
        let metrics = document[direction.name()].as_object().into_iter().flatten();
        metrics.map(move |(name, metric)| {
            let entry = metric["entries"].get(0).or_else(|| metric.get("like"));
            let value = entry
                .map_or_else(|| json!({ "type": "unsigned", "bits": 64 }), |entry| field(&entry["value"]));
            json!({
                "direction": direction, "name": name, "map": name, "type": "hash", "reading": "window",
                "histogram": metric["histogram"] == true, "value": value,
                "key": entry.map(|entry| field(&entry["key"])),
            })
        })
    };
    let metrics: Vec<_> = Direction::ALL.into_iter().flat_map(of_direction).collect();
    serde_json::from_value(json!({ "digest": "", "metrics": metrics })).expect("a shape")
}

fn field(value: &Value) -> Value {
    let members = match value {
        Value::Object(members) => members,
        Value::String(_) => return json!({ "type": "text", "size": 16 }),
        _ => return json!({ "type": "unsigned", "bits": 64 }),
    };
    let named = |(name, member): (&String, &Value)| {
        let mut field: Map<String, Value> =
            serde_json::from_value(field(member)).expect("an object");
        field.insert("name".to_owned(), name.clone().into());
        field
    };
    json!({ "type": "struct", "fields": members.iter().map(named).collect::<Vec<_>>() })
}
