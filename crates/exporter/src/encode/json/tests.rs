use super::*;

fn written(write: impl FnOnce(&mut Json)) -> String {
    let mut json = Json::default();
    write(&mut json);
    String::from_utf8(json.out).expect("UTF-8")
}

#[test]
fn strings_are_escaped() {
    let text = "a\"\\\n\r\t\u{1}\u{e4}";
    let json = written(|json| json.text(text));
    assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), text);
    assert!(json.contains("\\u0001"), "{json}");
}

#[test]
fn numbers_that_json_does_not_have_are_null() {
    assert_eq!(
        written(|json| json.float(f64::NAN, format_args!("NaN"))),
        "null"
    );
    assert_eq!(written(|json| json.signed(i64::MIN)), i64::MIN.to_string());
}

#[test]
fn members_and_items_are_parted_by_commas() {
    let json = written(|json| {
        json.begin_struct();
        for (index, name) in ["a", "b"].into_iter().enumerate() {
            let label = Json::label(name);
            json.begin_member(index, &label);
            json.begin_array();
            json.begin_item(0);
            json.boolean(true);
            json.end_item();
            json.begin_item(1);
            json.short(b"0123456789abcdef", 2);
            json.end_item();
            json.end_array();
            json.end_member(&label);
        }
        json.end_struct();
    });
    assert_eq!(json, r#"{"a":[true,"01"],"b":[true,"01"]}"#);
}
