//! The options of ClickHouse.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use serde::Deserialize;

use crate::config::duration;
use crate::config::tls_mode::is_here;
use crate::http::options::HttpOptions;
use crate::receivers::kind::ReceiverUrl;
use crate::rows::identifier::LONGEST;

/// The ports of the HTTP interface, with TLS and without.
const PORTS: [u16; 2] = [8443, 8123];

/// Options of a database.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ClickhouseOptions {
    /// The URL of the server's HTTP interface.
    url: String,
    /// The database of the tables, which the stream makes if it is missing.
    pub database: String,
    /// By default the server's user `default`.
    pub user: Option<String>,
    password_file: Option<PathBuf>,
    /// Authorities that have signed the server's certificate (PEM).
    ca: Option<PathBuf>,
    /// The certificate that the stream shows (PEM). Without a password, the certificate identifies
    /// the user.
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    /// The time for which windows are gathered for an insert. Each insert makes a file of each
    /// table, and the server merges these files.
    #[serde(default = "one_second", deserialize_with = "duration::read")]
    every: Duration,
}

const fn one_second() -> Duration {
    Duration::from_secs(1)
}

impl ClickhouseOptions {
    /// The options of the connection.
    pub fn http(&self) -> HttpOptions {
        let mut headers = BTreeMap::new();
        if let (Some(user), None) = (&self.user, &self.password_file) {
            headers.insert("X-ClickHouse-User".to_owned(), user.clone());
            if self.cert.is_some() {
                headers.insert(
                    "X-ClickHouse-SSL-Certificate-Auth".to_owned(),
                    "on".to_owned(),
                );
            }
        }
        HttpOptions {
            url: self.url.clone(),
            user: self.user.clone().filter(|_| self.password_file.is_some()),
            password_file: self.password_file.clone(),
            ca: self.ca.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            token_file: None,
            headers,
            headers_file: None,
            query_file: None,
        }
    }

    /// Reads `clickhouse://HOST/DATABASE`.
    pub fn of_url(url: &ReceiverUrl) -> Result<Self, String> {
        if url.authority.is_empty()
            || url.authority.contains(',')
            || url.path.is_empty()
            || url.path.contains('/')
        {
            return Err(format!(
                "{}://HOST/DATABASE is expected, with one host",
                url.scheme
            ));
        }
        let (host, port) = match url.authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (&*url.authority, None),
        };
        let is_plain = match url.scheme.split_once('+') {
            Some((_, scheme)) => scheme == "http",
            None => is_here(host),
        };
        let port = port.map_or_else(|| PORTS[usize::from(is_plain)].to_string(), str::to_owned);
        let address = format!(
            "{}://{host}:{port}",
            if is_plain { "http" } else { "https" }
        );
        Url::parse(&address)
            .map_err(|error| format!("{} can't be a host with a port: {error}", url.authority))?;
        let value = serde_json::json!({ "url": address, "database": url.path });
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    /// Checks the rules that types do not express. Returns the field and its mistake.
    pub fn checked(&self) -> Result<(), (&'static str, String)> {
        // Only the name of the user becomes a header, so an error about headers is about `user`.
        let named = |(field, message)| {
            if field == "headers" {
                ("user", message)
            } else {
                (field, message)
            }
        };
        self.http().check().map_err(named)?;
        if self.url.contains(['?', '#']) {
            return Err((
                "url",
                "the stream itself writes the part after ?; write `database`".to_owned(),
            ));
        }
        let name = &self.database;
        if name.is_empty() || name.len() > LONGEST || name.contains(char::is_control) {
            return Err((
                "database",
                format!("a name of 1 to {LONGEST} bytes is expected"),
            ));
        }
        Ok(())
    }

    /// Returns the URL of the HTTP interface.
    pub fn address(&self) -> &str {
        &self.url
    }

    /// Returns the time for which windows are gathered for an insert.
    pub const fn every(&self) -> Duration {
        self.every
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receivers::kind::ReceiverOptions as _;

    #[test]
    fn urls_name_a_server_and_a_database() {
        for (url, target) in [
            (
                "clickhouse://ch.example/w",
                "clickhouse+https://ch.example:8443/w",
            ),
            (
                "clickhouse://localhost/w",
                "clickhouse+http://localhost:8123/w",
            ),
            ("clickhouse://[::1]:9/w", "clickhouse+http://[::1]:9/w"),
            (
                "clickhouse+http://ch.example/w",
                "clickhouse+http://ch.example:8123/w",
            ),
            (
                "clickhouse+https://[::1]/w",
                "clickhouse+https://[::1]:8443/w",
            ),
        ] {
            let options = ClickhouseOptions::from_url(&url.parse().unwrap()).unwrap();
            options.check().unwrap();
            assert_eq!(options.target(), target);
        }
        for url in [
            "clickhouse://ch.example",
            "clickhouse:///w",
            "clickhouse://a,b/w",
            "clickhouse://a/b/c",
        ] {
            let wrong = ClickhouseOptions::from_url(&url.parse().unwrap()).unwrap_err();
            assert!(
                wrong.contains("HOST/DATABASE is expected"),
                "{url}: {wrong}"
            );
        }
        let wrong =
            ClickhouseOptions::from_url(&"clickhouse://a:port/w".parse().unwrap()).unwrap_err();
        assert!(wrong.contains("can't be a host with a port"), "{wrong}");
    }

    #[test]
    fn mistakes_name_their_field() {
        for (more, field) in [
            (serde_json::json!({ "url": "ch:8123" }), "url"),
            (serde_json::json!({ "url": "https://user:x@ch" }), "url"),
            (
                serde_json::json!({ "url": "https://ch/?database=x" }),
                "url",
            ),
            (
                serde_json::json!({ "url": "http://ch", "user": "u", "passwordFile": "/p" }),
                "url",
            ),
            (
                serde_json::json!({ "url": "http://localhost", "ca": "/ca" }),
                "ca",
            ),
            (serde_json::json!({ "key": "/key" }), "key"),
            (serde_json::json!({ "passwordFile": "/p" }), "user"),
            (serde_json::json!({ "user": "a\nb" }), "user"),
            (serde_json::json!({ "database": "" }), "database"),
            (
                serde_json::json!({ "database": "x".repeat(64) }),
                "database",
            ),
        ] {
            let mut value = serde_json::json!({ "url": "https://ch", "database": "w" });
            for (name, part) in more.as_object().unwrap() {
                value[name] = part.clone();
            }
            let options: ClickhouseOptions = serde_json::from_value(value).unwrap();
            assert_eq!(options.check().unwrap_err().0, field, "{more}");
        }
    }

    #[test]
    fn a_certificate_stands_for_a_user_without_a_password() {
        let of = |more: serde_json::Value| {
            let mut value = serde_json::json!({ "url": "https://ch", "database": "w", "user": "u", "cert": "/c" });
            value
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            serde_json::from_value::<ClickhouseOptions>(value)
                .unwrap()
                .http()
        };
        let shown = of(serde_json::json!({}));
        assert_eq!(shown.headers["X-ClickHouse-SSL-Certificate-Auth"], "on");
        assert_eq!(
            (shown.headers["X-ClickHouse-User"].as_str(), shown.user),
            ("u", None)
        );
        let told = of(serde_json::json!({ "passwordFile": "/p" }));
        assert_eq!((told.headers.len(), told.user.as_deref()), (0, Some("u")));
    }
}
