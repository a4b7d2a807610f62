//! The format of an answer: that of `Accept`, else that of `?format=`, else the probe's own.

use axum::http::{HeaderMap, StatusCode, header};
use twinprobe_ebpf_common::Format;

use crate::api::error::Problem;

/// Returns the formats that the request allows, the preferred one first; the probe's own is used if it is among them.
/// Refuses an `Accept` without any known type with 406 and an unknown `?format=` with 400.
pub fn allowed(headers: &HeaderMap, query: Option<&str>) -> Result<Vec<Format>, Problem> {
    let allowed = accept(headers).map_or_else(|| Format::ALL.to_vec(), |accept| by_accept(&accept));
    if allowed.is_empty() {
        return Err(not_acceptable(&Format::ALL.map(Format::media_type)));
    }
    let (Some(name), 2..) = (query, allowed.len()) else { return Ok(allowed) };
    let Some(asked) = Format::from_name(name) else {
        let known = Format::ALL.map(Format::name).join(", ");
        let detail = format!("format {name} is not known; possible are {known}");
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    };
    Ok(if allowed.contains(&asked) { vec![asked] } else { allowed })
}

/// Chooses by RFC 9110, section 12.5.1: the most specific range that matches a type gives its quality. Returns every
/// format that is not excluded if `*/*` has the highest quality, none if no range matches.
fn by_accept(accept: &str) -> Vec<Format> {
    let ranges = parse(accept);
    let quality = |format: Format| quality(&ranges, format.essence());
    let anything = self::quality(&ranges, "*/*").unwrap_or(0.0);
    let mut best: Option<(Format, f32)> = None;
    for format in Format::ALL {
        if let Some(q) = quality(format)
            && q > best.map_or(0.0, |(_, best)| best)
        {
            best = Some((format, q));
        }
    }
    if anything > best.map_or(0.0, |(_, q)| q) {
        return Format::ALL.into_iter().filter(|format| quality(*format).is_none_or(|q| q > 0.0)).collect();
    }
    best.map(|(format, _)| format).into_iter().collect()
}

/// Returns the request's `Accept`, of which several fields make one list; `None` if it has none.
pub fn accept(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.map(str::to_owned).reduce(|list, value| list + "," + &value)
}

pub fn not_acceptable(available: &[&str]) -> Problem {
    let detail = format!("no type in Accept is available; available are {}", available.join(", "));
    Problem::new(StatusCode::NOT_ACCEPTABLE, detail)
}

/// Returns the quality that the ranges give to a media type by itself or by its group, as in `text/*`.
pub fn quality(ranges: &[(String, f32)], media_type: &str) -> Option<f32> {
    let find = |wanted: &str| ranges.iter().find(|(range, _)| range == wanted).map(|(_, quality)| *quality);
    let (group, _) = media_type.split_once('/')?;
    find(media_type).or_else(|| find(&format!("{group}/*")))
}

/// Splits `Accept` into its media ranges in lower case, each with its quality.
pub fn parse(accept: &str) -> Vec<(String, f32)> {
    accept.split(',').filter_map(parse_range).collect()
}

fn parse_range(range: &str) -> Option<(String, f32)> {
    let mut parts = range.split(';').map(str::trim);
    let media_type = parts.next().filter(|name| !name.is_empty())?.to_ascii_lowercase();
    let quality = parts
        .filter_map(|parameter| parameter.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(1.0);
    Some((media_type, quality))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn quality_and_specificity_decide() {
        let cases = [
            ("application/json", vec![Format::Json]),
            ("application/xml", vec![Format::Xml]),
            ("Application/XML; charset=utf-8", vec![Format::Xml]),
            ("application/json;q=0.5, application/xml", vec![Format::Xml]),
            ("application/json;q=0, application/*", vec![Format::Xml]),
            ("*/*", Format::ALL.to_vec()),
            ("text/html, */*;q=0.1", Format::ALL.to_vec()),
            ("application/xml;q=0.1, */*;q=0.9", Format::ALL.to_vec()),
            ("application/xml;q=0.9, */*;q=0.1", vec![Format::Xml]),
            ("application/json;q=0, */*", vec![Format::Xml, Format::OpenMetrics]),
            ("application/*;q=0, */*", vec![]),
            ("application/openmetrics-text; version=1.0.0,text/plain;q=0.5", vec![Format::OpenMetrics]),
            ("text/html", vec![]),
            ("application/json;q=0", vec![]),
        ];
        for (accept, expected) in cases {
            assert_eq!(by_accept(accept), expected, "{accept}");
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
        let others = vec![Format::Xml, Format::OpenMetrics];
        assert_eq!(ask("application/json;q=0, */*", Some("json")), Some(others));
        assert_eq!(ask("text/html", Some("json")), None);
    }
}
