use super::*;

fn of_url(url: &str) -> Result<IpfixOptions, String> {
    let options = IpfixOptions::from_url(&url.parse()?)?;
    options.check().map_err(|(_, message)| message)?;
    Ok(options)
}

#[test]
fn schemes_have_ports() {
    for (url, target) in [
        ("ipfix://collector", "ipfix://collector:4739"),
        ("ipfix+tls://collector", "ipfix+tls://collector:4740"),
        ("ipfix+udp://[::1]", "ipfix+udp://[::1]:4739"),
        ("ipfix+udp://[::1]:9995", "ipfix+udp://[::1]:9995"),
    ] {
        assert_eq!(of_url(url).unwrap().target(), target);
    }
    assert!(of_url("ipfix://").unwrap_err().contains("HOST:PORT"));
    assert!(
        of_url("ipfix://host:port")
            .unwrap_err()
            .contains("HOST:PORT")
    );
    assert!(
        of_url("ipfix://host/path")
            .unwrap_err()
            .contains("without a path")
    );
}

#[test]
fn mistakes_name_their_field() {
    let mistake = |more: serde_json::Value| {
        let mut value = serde_json::json!({ "collector": "host" });
        for (name, part) in more.as_object().unwrap() {
            value[name] = part.clone();
        }
        serde_json::from_value::<IpfixOptions>(value)
            .unwrap()
            .check()
            .unwrap_err()
            .0
    };
    assert_eq!(
        mistake(serde_json::json!({ "enterprise": 0 })),
        "enterprise"
    );
    assert_eq!(mistake(serde_json::json!({ "mtu": 100 })), "mtu");
    assert_eq!(mistake(serde_json::json!({ "ca": "/ca.pem" })), "ca");
    assert_eq!(
        mistake(serde_json::json!({ "transport": "tls", "key": "/key.pem" })),
        "key"
    );
    assert_eq!(
        mistake(serde_json::json!({ "elements": { "bytes": "octets" } })),
        "elements"
    );
}
