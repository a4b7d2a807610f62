use super::*;

#[test]
fn names_are_made_those_of_elements() {
    let label = |name| {
        let (begin, end) = Xml::label(name);
        let mut out = Vec::new();
        begin.push_to(&mut out);
        end.push_to(&mut out);
        String::from_utf8(out).expect("UTF-8")
    };
    assert_eq!(label("packets"), "<packets></packets>");
    assert_eq!(label("$0"), "<_0></_0>");
    assert_eq!(label("0\u{e4}"), "<_0_></_0_>");
}

#[test]
fn text_is_escaped_and_what_xml_can_not_write_replaced() {
    let mut xml = Xml::default();
    xml.text("<a>&\0\t");
    xml.float(f64::NEG_INFINITY, format_args!("-inf"));
    assert_eq!(
        String::from_utf8(xml.buffer().clone()).expect("UTF-8"),
        "&lt;a&gt;&amp;\\x00\t-INF"
    );
}
