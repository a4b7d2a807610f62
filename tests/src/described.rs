//! Checks every answer against `api/openapi.yaml`: it must describe the status of every request in
//! tests.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

const DESCRIPTION: &str = include_str!("../../api/openapi.yaml");

/// The statuses that are described for each method of a path.
type Methods = BTreeMap<String, Vec<u16>>;

/// The paths that are described.
static PATHS: LazyLock<Vec<(String, Methods)>> = LazyLock::new(|| {
    let description: Value = yaml_serde::from_str(DESCRIPTION).expect("the description is YAML");
    let paths = description["paths"].as_object().expect("it has paths");
    paths
        .iter()
        .map(|(path, operations)| (path.clone(), methods(operations)))
        .collect()
});

fn methods(operations: &Value) -> Methods {
    let statuses = |operation: &Value| {
        let responses = operation["responses"].as_object()?;
        Some(
            responses
                .keys()
                .filter_map(|status| status.parse().ok())
                .collect(),
        )
    };
    let operations = operations.as_object().into_iter().flatten();
    operations
        .filter_map(|(method, operation)| Some((method.to_uppercase(), statuses(operation)?)))
        .collect()
}

/// Panics unless this status is described for the method and the path, or is an error of the server
/// itself.
#[track_caller]
pub fn check(method: &str, target: &str, status: u16) {
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    let described = PATHS
        .iter()
        .find(|(template, _)| fits(template, path))
        .map(|(_, methods)| methods);
    let as_described =
        match described.map(|methods| methods.get(if method == "HEAD" { "GET" } else { method })) {
            Some(Some(statuses)) => statuses.contains(&status) || method == "HEAD" && status == 405,
            Some(None) => status == 405 || is_guards(status),
            None => status == 404 || is_guards(status),
        };
    // The answer `default` of every operation describes these statuses.
    let is_servers_own = matches!(status, 429 | 500 | 503);
    assert!(
        as_described || is_servers_own,
        "{status} is not described for {method} {path}"
    );
}

/// True for statuses that refuse a request before the daemon checks whether its path exists.
fn is_guards(status: u16) -> bool {
    matches!(status, 401 | 403 | 415 | 421)
}

/// A name in braces stands for any segment.
fn fits(template: &str, path: &str) -> bool {
    let (mut template, mut path) = (template.split('/'), path.split('/'));
    loop {
        match (template.next(), path.next()) {
            (None, None) => return true,
            (Some(wanted), Some(segment)) if wanted == segment => {}
            (Some(wanted), Some(segment)) if wanted.starts_with('{') && !segment.is_empty() => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn what_is_described_passes() {
        check("PUT", "/v1/probes/a", 201);
        check("GET", "/v1/probes/a/windows?after=3", 200);
        check("DELETE", "/v1/probes/a/windows/7", 204);
        check("HEAD", "/v1/probes/a/metrics", 405);
        check("PATCH", "/v1/probes", 405);
        check("GET", "/v2", 404);
        check("GET", "/v1/probes", 503);
    }

    #[test]
    #[should_panic = "418 is not described for GET /v1/probes/a"]
    fn what_is_not_described_does_not() {
        check("GET", "/v1/probes/a", 418);
    }
}
