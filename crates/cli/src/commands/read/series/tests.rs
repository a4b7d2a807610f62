use twinprobe_api::{ChartSeries, NameList, OtherKeys};
use twinprobe_ebpf_common::Direction;

use super::*;

#[test]
fn each_point_is_a_row_and_each_key_a_column() {
    let values =
        |numbers: [Option<u64>; 2]| numbers.map(|number| number.map(Number::from)).to_vec();
    let chart = Chart {
        probe: "p".into(),
        metric: "m".into(),
        direction: Direction::Ingress,
        field: "bytes".into(),
        shows: ChartKind::Increase,
        times: vec![
            "2026-11-21T10:00:00.000Z".into(),
            "2026-11-21T10:00:02.000Z".into(),
        ],
        seconds: vec![2.0, 2.0],
        windows: 2,
        left_out: 1,
        source: None,
        series: vec![ChartSeries {
            key: serde_json::json!({ "address": "192.0.2.1", "port": 53 }),
            total: Some(30_u64.into()),
            values: values([None, Some(30)]),
        }],
        others: Some(OtherKeys {
            keys: 2,
            total: Some(5_u64.into()),
            values: values([Some(5), Some(0)]),
        }),
    };
    let screen = Screen {
        width: 100,
        colour: false,
        wide: false,
    };
    let [first, second] =
        ["00.000Z", "02.000Z"].map(|end| times::precise(&format!("2026-11-21T10:00:{end}")));
    let expected = format!(
        "\
TIME                     192.0.2.1 53  OTHERS
{first}                     5
{second}            30       0
1 windows could not be used
"
    );
    assert_eq!(render(&chart, false, screen), expected);
    let idle = Chart {
        series: Vec::new(),
        others: None,
        ..chart.clone()
    };
    assert!(
        render(&idle, false, screen).starts_with("nothing was counted in this time; windows: 2\n")
    );
    let rates = render(&chart, true, screen);
    assert!(
        rates.contains(" 15 B/s ") && rates.contains("2.50 B/s"),
        "per second: {rates}"
    );
}

#[test]
fn numbers_of_a_key_have_names_where_nobody_could_tell_them_apart() {
    let frame =
        serde_json::json!({ "interface": "eth0", "tags": 1, "vlan": 7, "address": "192.0.2.1" });
    assert_eq!(title(&frame), "eth0 tags=1 vlan=7 192.0.2.1");
    let flow =
        serde_json::json!({ "address": "192.0.2.1", "L4_SRC_PORT": 53, "peer_port": 9, "ttl": 64 });
    assert_eq!(title(&flow), "192.0.2.1 53 9 64");
}

#[test]
fn names_stand_below_the_numbers() {
    let names = serde_json::json!({ "kinds": ["dns"], "ports": [], "addresses": [
            { "address": "192.0.2.1", "names": [{ "name": "db.example", "from": "dns" }] },
        ] });
    let names = NamedAddresses::from(serde_json::from_value::<NameList>(names).unwrap());
    let screen = Screen {
        width: 80,
        colour: false,
        wide: false,
    };
    let words = ["192.0.2.1", "53", "192.0.2.1", "192.0.2.9"];
    assert_eq!(
        named(&words, &names, screen),
        "\nADDRESS    NAME\n192.0.2.1  db.example\n"
    );
    assert_eq!(named(&words[3..], &names, screen), "");
}

#[test]
fn a_key_may_be_written_as_in_documents_and_as_in_the_heading() {
    let key = |port: u64| serde_json::json!({ "interface": "s0", "port": port });
    let known: Vec<Value> = (0..7).map(key).collect();
    let find = |wanted: &str| known_keys(&[wanted.to_owned()], &known, "ports");
    let expected = [r#"{"interface":"s0","port":5}"#.to_owned()];
    assert_eq!(
        find(r#"{ "port": 5, "interface": "s0" }"#).unwrap(),
        expected
    );
    assert_eq!(find("s0 5").unwrap(), expected);
    let error = find("192.0.2.1").unwrap_err();
    let words =
        "ports has no key 192.0.2.1 in these windows; it has s0 0, s0 1, s0 2, s0 3, s0 4, ...";
    assert_eq!((error.to_string().as_str(), error.status()), (words, 1));
    let none = known_keys(&["a".to_owned()], &[], "ports")
        .unwrap_err()
        .to_string();
    assert!(none.ends_with("it has none"), "{none}");
    assert!(is_written(&serde_json::json!("5"), "5") && is_written(&serde_json::json!(5), "5"));
}
