//! The format of an answer: that of `Accept`, else that of `?format=`, else the probe's own.

use axum::http::{HeaderMap, StatusCode, header};
use twinprobe_exporter::Format;

use super::error::Problem;

/// Returns the format that the request asks for, `None` if the probe decides. Refuses an `Accept` without any known
/// type with 406 and an unknown `?format=` with 400.
pub fn requested(headers: &HeaderMap, query: Option<&str>) -> Result<Option<Format>, Problem> {
    let accept: Vec<&str> =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    if !accept.is_empty() {
        match by_accept(&accept.join(",")) {
            Accepted::Format(format) => return Ok(Some(format)),
            Accepted::Anything => {}
            Accepted::Nothing => {
                let known: Vec<&str> = Format::ALL.iter().map(|format| format.media_type()).collect();
                let detail = format!("no type in Accept is available; available are {}", known.join(", "));
                return Err(Problem::new(StatusCode::NOT_ACCEPTABLE, detail));
            }
        }
    }
    let Some(name) = query else { return Ok(None) };
    Format::from_name(name).map(Some).ok_or_else(|| {
        let known: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
        let detail = format!("format {name} is not known; possible are {}", known.join(", "));
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Accepted {
    Format(Format),
    /// `*/*`, which leaves the choice to the probe.
    Anything,
    Nothing,
}

/// Chooses by RFC 9110, section 12.5.1: the most specific range that matches a type gives its quality.
fn by_accept(accept: &str) -> Accepted {
    let ranges: Vec<(String, f32)> = accept.split(',').filter_map(parse_range).collect();
    let quality = |media_type: &str| {
        let (kind, _) = media_type.split_once('/').unwrap_or((media_type, ""));
        let find = |wanted: &str| ranges.iter().find(|(range, _)| range == wanted).map(|(_, q)| *q);
        find(media_type).or_else(|| find(&format!("{kind}/*")))
    };
    let anything = ranges.iter().find(|(range, _)| range == "*/*").map_or(0.0, |(_, q)| *q);
    let mut best: Option<(Format, f32)> = None;
    for format in Format::ALL {
        if let Some(q) = quality(format.essence())
            && q > best.map_or(0.0, |(_, best)| best)
        {
            best = Some((format, q));
        }
    }
    match best {
        Some((format, q)) if q >= anything => Accepted::Format(format),
        _ if anything > 0.0 => Accepted::Anything,
        Some((format, _)) => Accepted::Format(format),
        None => Accepted::Nothing,
    }
}

/// Splits a media range into its type in lower case and its quality.
pub fn parse_range(range: &str) -> Option<(String, f32)> {
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
    use super::*;

    #[test]
    fn quality_and_specificity_decide() {
        let cases = [
            ("application/json", Accepted::Format(Format::Json)),
            ("application/xml", Accepted::Format(Format::Xml)),
            ("Application/XML; charset=utf-8", Accepted::Format(Format::Xml)),
            ("application/json;q=0.5, application/xml", Accepted::Format(Format::Xml)),
            ("application/json;q=0, application/*", Accepted::Format(Format::Xml)),
            ("*/*", Accepted::Anything),
            ("text/html, */*;q=0.1", Accepted::Anything),
            ("application/xml;q=0.9, */*;q=0.1", Accepted::Format(Format::Xml)),
            (
                "application/openmetrics-text; version=1.0.0,text/plain;q=0.5",
                Accepted::Format(Format::OpenMetrics),
            ),
            ("text/html", Accepted::Nothing),
            ("application/json;q=0", Accepted::Nothing),
        ];
        for (accept, expected) in cases {
            assert_eq!(by_accept(accept), expected, "{accept}");
        }
    }
}
