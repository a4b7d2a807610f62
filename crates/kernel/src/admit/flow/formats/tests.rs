use super::*;

#[test]
fn conversions_are_found_in_formats() {
    let found = |format: &str| conversions(format.as_bytes());
    assert_eq!(found("none"), None);
    assert_eq!(found("100 %%\0 %d"), Some(Vec::new()));
    let (text, shown) = (FormatUse::Read(None), FormatUse::Shown);
    assert_eq!(
        found("%s %-20s %pks %d\0"),
        Some(vec![text, text, text, shown])
    );
    let [four, six] = [4, 16].map(|bytes| FormatUse::Read(Some(bytes)));
    assert_eq!(
        found("%pI4:%d %pi6 %pI4\0"),
        Some(vec![four, shown, six, four])
    );
    assert_eq!(found("%p %px %pK %llx %pB %p\0"), Some(vec![shown; 6]));
}
