//! The web console: the files that are embedded in the daemon, and the rules for browsers that show
//! them.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::api::error::ProblemAnswer;

/// A file of the console, uncompressed and compressed.
#[derive(Debug)]
struct ConsoleFile {
    name: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
    brotli: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/console.rs"));

/// The page of a daemon that was built without the console.
const WITHOUT: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>twinprobe</title></head>
<body><h1>twinprobe</h1>
<p>This daemon was built without its web console. <code>make build</code> builds it with the console; that needs node and
npm. The API is there: <a href=\"/openapi.yaml\">/openapi.yaml</a> describes it.</p>
</body></html>
";

/// The page may load only files of this daemon, and no page may show it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
const HEADERS: [(HeaderName, HeaderValue); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(POLICY),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];
/// The header for files other than the page. Their names contain a digest of their content, so
/// these files never change.
const FOREVER: &str = "public, max-age=31536000, immutable";

/// Answers `GET /`.
pub async fn index(headers: HeaderMap) -> Response {
    match FILES.iter().find(|file| file.name == "index.html") {
        Some(file) => answer(file, &headers, "no-cache"),
        None => (
            HEADERS,
            [(header::CONTENT_TYPE, "text/html; charset=utf-8")],
            WITHOUT,
        )
            .into_response(),
    }
}

/// Answers `GET /console/{file}`.
pub async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match FILES
        .iter()
        .find(|file| file.name == name && name != "index.html")
    {
        Some(file) => answer(file, &headers, FOREVER),
        None => {
            let detail = "the console has no such file; load the page again, the daemon may have a newer one";
            ProblemAnswer::new(StatusCode::NOT_FOUND, detail).into_response()
        }
    }
}

fn answer(file: &ConsoleFile, headers: &HeaderMap, cache: &'static str) -> Response {
    let (encoding, body) = encoded(file, headers);
    let mut response = (
        HEADERS,
        [
            (header::CONTENT_TYPE, media_type(file.name)),
            (header::CACHE_CONTROL, cache),
            (header::VARY, "accept-encoding"),
        ],
        body,
    )
        .into_response();
    if let Some(encoding) = encoding {
        response
            .headers_mut()
            .insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    response
}

/// Chooses the smallest form of the file that the client accepts.
fn encoded(file: &ConsoleFile, headers: &HeaderMap) -> (Option<&'static str>, &'static [u8]) {
    let lists = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|list| list.to_str().ok());
    let quality = |part: &str| {
        let quality = part
            .split(';')
            .find_map(|part| part.trim().strip_prefix("q="));
        quality.map_or(1.0, |quality| quality.trim().parse().unwrap_or(0.0))
    };
    let accepted: Vec<&str> = lists
        .flat_map(|list| list.split(','))
        .filter(|part| quality(part) > 0.0)
        .map(|part| part.split(';').next().unwrap_or_default().trim())
        .collect();
    match accepted {
        accepted if accepted.contains(&"br") => (Some("br"), file.brotli),
        accepted if accepted.contains(&"gzip") => (Some("gzip"), file.gzip),
        _ => (None, file.plain),
    }
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json") => "application/json",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: ConsoleFile = ConsoleFile {
        name: "main-1.js",
        plain: b"plain",
        gzip: b"gzip",
        brotli: b"brotli",
    };

    #[test]
    fn the_smallest_form_that_is_accepted_is_sent() {
        for (accept, expected) in [
            (None, None),
            (Some("identity"), None),
            (Some("gzip"), Some("gzip")),
            (Some("gzip, deflate, br, zstd"), Some("br")),
            (Some("gzip;q=0.5, br;q=0"), Some("gzip")),
            (Some("br; q=0, gzip; q=0"), None),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(accept));
            }
            assert_eq!(encoded(&FILE, &headers).0, expected, "{accept:?}");
        }
    }

    #[test]
    fn a_file_has_a_media_type_and_the_policy() {
        let response = answer(&FILE, &HeaderMap::new(), FOREVER);
        assert_eq!(
            response.headers()[header::CONTENT_TYPE],
            "text/javascript; charset=utf-8"
        );
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY]
            .to_str()
            .unwrap();
        assert!(
            policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
    }
}
