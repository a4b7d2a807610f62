//! The format of an answer: that of `Accept`, else that of `?format=`, else the probe's own.

use axum::http::{HeaderMap, StatusCode, header};
use twinprobe_ebpf_common::Format;

use crate::api::error::Problem;

/// Returns the formats that the request allows, the preferred one first; the probe's own is used if it is among them.
/// Refuses an `Accept` without any known type with 406 and an unknown `?format=` with 400.
pub fn allowed(headers: &HeaderMap, query: Option<&str>) -> Result<Vec<Format>, Problem> {
    let allowed = accepted(headers, &Format::ALL)?;
    let (Some(name), 2..) = (query, allowed.len()) else { return Ok(allowed) };
    let Some(asked) = Format::from_name(name) else {
        let known = Format::ALL.map(Format::name).join(", ");
        let detail = format!("format {name} is not known; possible are {known}");
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    };
    Ok(if allowed.contains(&asked) { vec![asked] } else { allowed })
}

/// Returns those of `formats` that the request's `Accept` prefers, all of the same quality; all if it has none. Refuses one
/// without any of them with 406.
pub fn accepted(headers: &HeaderMap, formats: &[Format]) -> Result<Vec<Format>, Problem> {
    let accepted = accept(headers).map_or_else(|| formats.to_vec(), |accept| by_accept(&accept, formats));
    if accepted.is_empty() {
        return Err(not_acceptable(&formats.iter().map(|format| format.media_type()).collect::<Vec<_>>()));
    }
    Ok(accepted)
}

/// Chooses by RFC 9110, section 12.5.1: the most specific range that matches a type gives its quality. Returns the formats of
/// the highest quality, none if no range matches.
fn by_accept(accept: &str, formats: &[Format]) -> Vec<Format> {
    let ranges = parse(accept);
    let quality = |format: &Format| quality(&ranges, format.media_type());
    let best = formats.iter().map(quality).fold(0.0, f32::max);
    formats.iter().filter(|format| best > 0.0 && quality(format) >= best).copied().collect()
}

/// Returns the request's `Accept`, of which several fields make one list; `None` if it has none or an empty one.
pub fn accept(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let list = values.map(str::to_owned).reduce(|list, value| list + "," + &value)?;
    list.contains(|c: char| c != ',' && !c.is_whitespace()).then_some(list)
}

pub fn not_acceptable(available: &[&str]) -> Problem {
    let detail = format!("no type in Accept is available; available are {}", available.join(", "));
    Problem::new(StatusCode::NOT_ACCEPTABLE, detail)
}

/// A range of media types in `Accept`.
#[derive(Debug)]
pub struct Range {
    /// In lower case: `text/plain`, `text/*` or `*/*`.
    media_type: String,
    /// The parameter `version`, by which types of metrics differ; other parameters are not told apart.
    version: Option<String>,
    quality: f32,
}

impl Range {
    /// Returns how specific the range is, if it has this media type.
    fn matches(&self, essence: &str, version: Option<&str>) -> Option<u8> {
        let group = essence.split_once('/').map_or("", |(group, _)| group);
        let is_group = self.media_type.strip_suffix("/*") == Some(group);
        match (&self.version, &*self.media_type) {
            (None, "*/*") => Some(0),
            (None, _) if is_group => Some(1),
            (None, own) if own == essence => Some(2),
            (Some(asked), own) if own == essence && version == Some(asked) => Some(3),
            _ => None,
        }
    }
}

/// Returns the quality that the most specific of the ranges gives to a media type, 0 if none has it.
pub fn quality(ranges: &[Range], media_type: &str) -> f32 {
    let Some(Range { media_type, version, .. }) = parse_range(media_type) else { return 0.0 };
    let matching = ranges
        .iter()
        .filter_map(|range| Some((range.matches(&media_type, version.as_deref())?, range.quality)));
    // Of equal ranges the first one counts.
    matching
        .reduce(|best, next| if next.0 > best.0 { next } else { best })
        .map_or(0.0, |(_, quality)| quality)
}

/// Splits `Accept` into its media ranges.
pub fn parse(accept: &str) -> Vec<Range> {
    accept.split(',').filter_map(parse_range).collect()
}

fn parse_range(range: &str) -> Option<Range> {
    let mut parts = range.split(';').map(str::trim);
    let media_type = parts.next().filter(|name| !name.is_empty())?.to_ascii_lowercase();
    let parameters: Vec<(&str, &str)> = parts
        .filter_map(|parameter| parameter.split_once('='))
        .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
        .collect();
    let parameter = |wanted: &str| {
        parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| *value)
    };
    let quality = parameter("q").and_then(|value| value.parse().ok());
    let quality = quality.filter(|quality| (0.0..=1.0).contains(quality)).unwrap_or(1.0);
    Some(Range { media_type, version: parameter("version").map(str::to_owned), quality })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn quality_and_specificity_decide() {
        use Format::{Json, OpenMetrics, Prometheus, Xml};
        let all = Format::ALL.to_vec();
        let cases = [
            ("application/json", vec![Json]),
            ("application/xml", vec![Xml]),
            ("Application/XML; charset=utf-8", vec![Xml]),
            ("application/json;q=0.5, application/xml", vec![Xml]),
            ("application/json;q=0, application/*", vec![Xml, OpenMetrics]),
            ("*/*", all.clone()),
            ("text/html, */*;q=0.1", all),
            ("application/xml;q=0.1, */*;q=0.9", vec![Json, OpenMetrics, Prometheus]),
            ("application/xml;q=0.9, */*;q=0.1", vec![Xml]),
            ("application/json;q=0, */*", vec![Xml, OpenMetrics, Prometheus]),
            ("application/*;q=0, */*", vec![Prometheus]),
            ("application/*;q=0, text/plain;q=0, */*", vec![]),
            ("application/openmetrics-text; version=1.0.0,text/plain;q=0.5", vec![OpenMetrics]),
            ("application/openmetrics-text; version=\"1.0.0\"", vec![OpenMetrics]),
            ("application/openmetrics-text; version=2.0.0", vec![]),
            (
                "application/openmetrics-text; version=0.0.1, text/plain; version=0.0.4; q=0.5",
                vec![Prometheus],
            ),
            ("application/openmetrics-text; version=1.0.0; q=0, application/openmetrics-text", vec![]),
            ("text/plain", vec![Prometheus]),
            ("text/*;q=0.3", vec![Prometheus]),
            ("text/plain; version=1.0.0", vec![]),
            ("text/plain, application/json", vec![Json, Prometheus]),
            ("text/html", vec![]),
            ("application/json;q=0", vec![]),
            ("application/json;q=0, application/json", vec![]),
        ];
        for (accept, expected) in cases {
            assert_eq!(by_accept(accept, &Format::ALL), expected, "{accept}");
        }
    }

    #[test]
    fn a_query_chooses_among_the_types_that_accept_leaves() {
        let ask = |accept: &'static str, query| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            allowed(&headers, query).ok()
        };
        assert_eq!(ask("*/*", Some("xml")), Some(vec![Format::Xml]));
        assert_eq!(ask("*/*", Some("yaml")), None);
        assert_eq!(ask("application/json", Some("xml")), Some(vec![Format::Json]));
        let others = vec![Format::Xml, Format::OpenMetrics, Format::Prometheus];
        assert_eq!(ask("application/json;q=0, */*", Some("json")), Some(others));
        assert_eq!(ask("text/html", Some("json")), None);
        assert_eq!(ask("", Some("json")), Some(vec![Format::Json]));
    }
}
