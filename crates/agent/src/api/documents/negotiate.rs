//! The format of an answer: from `Accept`, or else from `?format=`, or else the probe's default.

use axum::http::{HeaderMap, StatusCode, header};
use twinprobe_ebpf_common::Format;

use crate::api::error::ProblemAnswer;

/// Returns the formats that the request allows, the preferred one first. The probe's own format is
/// used if the request allows it. Refuses an `Accept` without any known type with 406 and an
/// unknown `?format=` with 400.
pub fn allowed(headers: &HeaderMap, query: Option<&str>) -> Result<Vec<Format>, ProblemAnswer> {
    let allowed = accepted(
        headers,
        &Format::ALL.map(|format| (format.media_type(), format)),
    )?;
    let (Some(name), 2..) = (query, allowed.len()) else {
        return Ok(allowed);
    };
    let Some(asked) = Format::from_name(name) else {
        let known = Format::ALL.map(Format::name).join(", ");
        let detail = format!("unknown format {name}; use one of {known}");
        return Err(ProblemAnswer::new(StatusCode::BAD_REQUEST, detail));
    };
    Ok(if allowed.contains(&asked) {
        vec![asked]
    } else {
        allowed
    })
}

/// Returns the members of `formats` (with their media types) that the request's `Accept` prefers
/// with the same quality; all members if the request has no `Accept`. Refuses an `Accept` that fits
/// none of the formats, with 406.
pub fn accepted<T: Copy>(
    headers: &HeaderMap,
    formats: &[(&str, T)],
) -> Result<Vec<T>, ProblemAnswer> {
    let all = || formats.iter().map(|(_, format)| *format).collect();
    let accepted = accept(headers).map_or_else(all, |accept| by_accept(&accept, formats));
    if accepted.is_empty() {
        return Err(not_acceptable(
            &formats
                .iter()
                .map(|(media_type, _)| *media_type)
                .collect::<Vec<_>>(),
        ));
    }
    Ok(accepted)
}

/// Chooses by RFC 9110, section 12.5.1: the most specific range that matches a type determines the
/// quality of the type. Returns the formats of the highest quality; none if no range matches.
fn by_accept<T: Copy>(accept: &str, formats: &[(&str, T)]) -> Vec<T> {
    let ranges = parse(accept);
    let qualities = formats
        .iter()
        .map(|(media_type, format)| (quality(&ranges, media_type), *format));
    let best = qualities
        .clone()
        .map(|(quality, _)| quality)
        .fold(0.0, f32::max);
    qualities
        .filter(|(quality, _)| best > 0.0 && *quality >= best)
        .map(|(_, format)| format)
        .collect()
}

/// Returns the request's `Accept`; `None` if it is missing or empty. Several header fields make one
/// list.
pub fn accept(headers: &HeaderMap) -> Option<String> {
    let values = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let list = values
        .map(str::to_owned)
        .reduce(|list, value| list + "," + &value)?;
    list.contains(|c: char| c != ',' && !c.is_whitespace())
        .then_some(list)
}

pub fn not_acceptable(available: &[&str]) -> ProblemAnswer {
    let detail = format!(
        "Accept has no type that this document has; use one of {}",
        available.join(", ")
    );
    ProblemAnswer::new(StatusCode::NOT_ACCEPTABLE, detail)
}

/// The parameters that distinguish types of metrics. Others, such as `charset` and `escaping`, are
/// ignored.
const PARAMETERS: [&str; 3] = ["version", "proto", "encoding"];

/// A range of media types in `Accept`.
#[derive(Debug)]
pub struct Range {
    /// The type in lower case: `text/plain`, `text/*` or `*/*`.
    media_type: String,
    /// The range's values of [`PARAMETERS`].
    parameters: [Option<String>; PARAMETERS.len()],
    quality: f32,
}

impl Range {
    /// Returns how specific the range is; `None` if the range does not include this media type.
    fn matches(&self, offered: &Self) -> Option<u8> {
        let group = offered
            .media_type
            .split_once('/')
            .map_or("", |(group, _)| group);
        let is_group = self.media_type.strip_suffix("/*") == Some(group);
        let is_bare = self.parameters.iter().all(Option::is_none);
        let mut pairs = self.parameters.iter().zip(&offered.parameters);
        match &*self.media_type {
            "*/*" if is_bare => Some(0),
            _ if is_bare && is_group => Some(1),
            own if own != offered.media_type => None,
            _ if is_bare => Some(2),
            _ => pairs
                .all(|(asked, offered)| asked.is_none() || asked == offered)
                .then_some(3),
        }
    }
}

/// Returns the quality that the most specific matching range gives to a media type; 0 without a
/// matching range.
pub fn quality(ranges: &[Range], media_type: &str) -> f32 {
    let Some(offered) = parse_range(media_type) else {
        return 0.0;
    };
    let matching = ranges
        .iter()
        .filter_map(|range| Some((range.matches(&offered)?, range.quality)));
    // The first of equal ranges counts.
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
    let media_type = parts
        .next()
        .filter(|name| !name.is_empty())?
        .to_ascii_lowercase();
    let parameters: Vec<(&str, &str)> = parts
        .filter_map(|parameter| parameter.split_once('='))
        .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
        .collect();
    let parameter = |wanted: &str| {
        parameters
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
            .map(|(_, value)| *value)
    };
    let quality = parameter("q").and_then(|value| value.parse().ok());
    let quality = quality
        .filter(|quality| (0.0..=1.0).contains(quality))
        .unwrap_or(1.0);
    let parameters = PARAMETERS.map(|name| parameter(name).map(str::to_owned));
    Some(Range {
        media_type,
        parameters,
        quality,
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use twinprobe_exporter::PageFormat;

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
            (
                "application/json;q=0, application/*",
                vec![Xml, OpenMetrics],
            ),
            ("*/*", all.clone()),
            ("text/html, */*;q=0.1", all),
            (
                "application/xml;q=0.1, */*;q=0.9",
                vec![Json, OpenMetrics, Prometheus],
            ),
            ("application/xml;q=0.9, */*;q=0.1", vec![Xml]),
            (
                "application/json;q=0, */*",
                vec![Xml, OpenMetrics, Prometheus],
            ),
            ("application/*;q=0, */*", vec![Prometheus]),
            ("application/*;q=0, text/plain;q=0, */*", vec![]),
            (
                "application/openmetrics-text; version=1.0.0,text/plain;q=0.5",
                vec![OpenMetrics],
            ),
            (
                "application/openmetrics-text; version=\"1.0.0\"",
                vec![OpenMetrics],
            ),
            ("application/openmetrics-text; version=2.0.0", vec![]),
            (
                "application/openmetrics-text; version=0.0.1, text/plain; version=0.0.4; q=0.5",
                vec![Prometheus],
            ),
            (
                "application/openmetrics-text; version=1.0.0; q=0, application/openmetrics-text",
                vec![],
            ),
            ("text/plain", vec![Prometheus]),
            ("text/*;q=0.3", vec![Prometheus]),
            ("text/plain; version=1.0.0", vec![]),
            ("text/plain, application/json", vec![Json, Prometheus]),
            ("text/html", vec![]),
            ("application/json;q=0", vec![]),
            ("application/json;q=0, application/json", vec![]),
        ];
        let formats = Format::ALL.map(|format| (format.media_type(), format));
        for (accept, expected) in cases {
            assert_eq!(by_accept(accept, &formats), expected, "{accept}");
        }
    }

    #[test]
    fn scrapers_get_the_page_that_they_prefer() {
        use PageFormat::{NewerText, OpenMetrics, Protobuf, Text};
        const PROTOBUF: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        let formats = PageFormat::ALL.map(|format| (format.media_type(), format));
        let with = |rest: &str| format!("{PROTOBUF}{rest}");
        for (accept, expected) in [
            // The values that Prometheus 2.42 and 3 send, without and with native histograms.
            ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
              text/plain;version=0.0.4;q=0.5,*/*;q=0.1".to_owned(), vec![OpenMetrics]),
            (with(",application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"),
             vec![Protobuf]),
            (with(";escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
              text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"),
             vec![Protobuf]),
            ("text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5".to_owned(),
             vec![NewerText]),
            (with(";q=0.2,text/plain;version=0.0.4;q=0.3"), vec![Text]),
            ("text/plain".to_owned(), vec![Text, NewerText]),
            ("application/vnd.google.protobuf".to_owned(), vec![Protobuf]),
            ("*/*".to_owned(), PageFormat::ALL.to_vec()),
            (PROTOBUF.replace("delimited", "text"), vec![]),
            (PROTOBUF.replace("MetricFamily", "Metric"), vec![]),
            ("text/plain;version=2.0.0".to_owned(), vec![]),
            (with(";q=0"), vec![]),
        ] {
            assert_eq!(by_accept(&accept, &formats), expected, "{accept}");
        }
    }

    #[test]
    fn a_query_chooses_among_the_types_that_accept_leaves() {
        let ask = |accept: &'static str, query| {
            let headers =
                HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            allowed(&headers, query).ok()
        };
        assert_eq!(ask("*/*", Some("xml")), Some(vec![Format::Xml]));
        assert_eq!(ask("*/*", Some("yaml")), None);
        assert_eq!(
            ask("application/json", Some("xml")),
            Some(vec![Format::Json])
        );
        let others = vec![Format::Xml, Format::OpenMetrics, Format::Prometheus];
        assert_eq!(ask("application/json;q=0, */*", Some("json")), Some(others));
        assert_eq!(ask("text/html", Some("json")), None);
        assert_eq!(ask("", Some("json")), Some(vec![Format::Json]));
    }
}
