//! The names of files: each name gives the windows of its file, so a receiver can skip existing
//! windows.

use crate::names::part;
use crate::receiver::SeriesName;

const ENDING: &str = ".parquet";

/// Returns the directory of the windows of a table that ended in the hour of `end`, RFC 3339.
pub fn directory(series: &SeriesName, table: &str, end: &str) -> String {
    let (date, hour) = (
        end.get(..10).unwrap_or("unknown"),
        end.get(11..13).unwrap_or("unknown"),
    );
    format!(
        "{}/{}/date={}/hour={}",
        part(&series.probe),
        part(table),
        part(date),
        part(hour)
    )
}

/// Returns the common prefix of the names of a series' files in a directory.
pub fn prefix(series: &SeriesName) -> String {
    format!("{}.{}.", part(&series.node), part(&series.instance))
}

/// Returns the name of the file with the windows from `first` to `last`.
pub fn file(series: &SeriesName, first: u64, last: u64) -> String {
    format!("{}{first:012}-{last:012}{ENDING}", prefix(series))
}

/// Returns the windows that a file of the series holds, by its name.
pub fn held(series: &SeriesName, name: &str) -> Option<(u64, u64)> {
    let (first, last) = name
        .strip_prefix(&prefix(series))?
        .strip_suffix(ENDING)?
        .split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_a_file_holds() {
        let series = SeriesName {
            node: "gw/1.example".into(),
            instance: "4f".into(),
            probe: "flows".into(),
        };
        let name = file(&series, 3, 1_000);
        assert_eq!(name, "gw%2F1.example.4f.000000000003-000000001000.parquet");
        assert_eq!(held(&series, &name), Some((3, 1_000)));
        let other = SeriesName {
            instance: "4e".into(),
            ..series.clone()
        };
        assert_eq!(held(&other, &name), None);
        assert_eq!(held(&series, "gw%2F1.example.4f.x.parquet"), None);
        let directory = directory(&series, "ingress.flows", "2026-11-21T10:00:10.000000000Z");
        assert_eq!(directory, "flows/ingress.flows/date=2026-11-21/hour=10");
    }
}
