use super::*;

#[test]
fn a_subject_has_three_parts_whatever_the_names_are() {
    let series = SeriesName {
        node: "gw-1.example".into(),
        instance: "4f".into(),
        probe: "a.b>*".into(),
    };
    assert_eq!(
        subject("twinprobe", &series),
        "twinprobe.gw-1%2Eexample.a%2Eb%3E%2A"
    );
}

#[test]
fn options_are_checked() {
    let read = |json: serde_json::Value| {
        let options: NatsOptions = serde_json::from_value(json).unwrap();
        options.check().map_err(|(field, _)| field)
    };
    let servers = ["nats://h"];
    assert_eq!(
        read(serde_json::json!({ "servers": servers, "stream": "S" })),
        Ok(())
    );
    assert_eq!(
        read(serde_json::json!({ "servers": ["nats://u:p@h"], "stream": "S" })),
        Err("servers")
    );
    assert_eq!(
        read(serde_json::json!({ "servers": servers, "stream": "a.b" })),
        Err("stream")
    );
    assert_eq!(
        read(serde_json::json!({ "servers": servers, "stream": "S", "user": "u" })),
        Err("user")
    );
    assert_eq!(
        read(serde_json::json!({ "servers": servers, "stream": "S", "cert": "c" })),
        Err("cert")
    );
}

#[test]
fn secrets_leave_the_machine_over_tls_alone() {
    let read = |server: &str, more: serde_json::Value| {
        let mut value = serde_json::json!({ "servers": [server], "stream": "S" });
        value
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        serde_json::from_value::<NatsOptions>(value).unwrap()
    };
    let (none, token) = (
        serde_json::json!({}),
        serde_json::json!({ "tokenFile": "/t" }),
    );
    for (server, more, is_encrypted) in [
        ("nats://h:4222", none.clone(), false),
        ("tls://h:4222", none.clone(), true),
        ("h", serde_json::json!({ "ca": "/ca" }), true),
        (
            "nats://127.0.0.1:4222",
            serde_json::json!({ "cert": "/c", "key": "/k" }),
            true,
        ),
        ("nats://h:4222", token.clone(), true),
        ("h", serde_json::json!({ "nkeyFile": "/n" }), true),
        (
            "h:1",
            serde_json::json!({ "user": "u", "passwordFile": "/p" }),
            true,
        ),
        ("h", serde_json::json!({ "credentialsFile": "/c" }), true),
        ("nats://[::1]:4222", token.clone(), false),
        ("nats://localhost", token, false),
        (
            "nats://h",
            serde_json::json!({ "tokenFile": "/t", "tls": "disable" }),
            false,
        ),
        (
            "nats://localhost",
            serde_json::json!({ "tls": "require" }),
            true,
        ),
    ] {
        let options = read(server, more.clone());
        options.check().unwrap();
        assert_eq!(options.is_encrypted(), is_encrypted, "{server} {more}");
    }
    for (server, more) in [
        ("tls://h", none),
        ("nats://h", serde_json::json!({ "ca": "/ca" })),
    ] {
        let mut more = more;
        more["tls"] = "disable".into();
        assert_eq!(read(server, more).check().unwrap_err().0, "tls");
    }
}
