use super::*;

#[test]
fn a_subject_has_three_parts_whatever_the_names_are() {
    let series = SeriesName { node: "gw-1.example".into(), instance: "4f".into(), probe: "a.b>*".into() };
    assert_eq!(subject("twinprobe", &series), "twinprobe.gw-1%2Eexample.a%2Eb%3E%2A");
}

#[test]
fn options_are_checked() {
    let read = |json: serde_json::Value| {
        let options: NatsOptions = serde_json::from_value(json).unwrap();
        options.check().map_err(|(field, _)| field)
    };
    let servers = ["nats://h"];
    assert_eq!(read(serde_json::json!({ "servers": servers, "stream": "S" })), Ok(()));
    assert_eq!(read(serde_json::json!({ "servers": ["nats://u:p@h"], "stream": "S" })), Err("servers"));
    assert_eq!(read(serde_json::json!({ "servers": servers, "stream": "a.b" })), Err("stream"));
    assert_eq!(read(serde_json::json!({ "servers": servers, "stream": "S", "user": "u" })), Err("user"));
    assert_eq!(read(serde_json::json!({ "servers": servers, "stream": "S", "cert": "c" })), Err("cert"));
}
