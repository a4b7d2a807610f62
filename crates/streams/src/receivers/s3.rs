//! Files of Parquet in a bucket of S3, or of another server with the same API.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use reqwest::{Response, StatusCode, Url};
use rusty_s3::actions::ListObjectsV2;
use rusty_s3::{Bucket, Credentials, S3Action as _, UrlStyle};
use serde::Deserialize;

use super::kind::{ReceiverOptions, ReceiverSetup, ReceiverUrl};
use crate::config::duration;
use crate::http::access::certified;
use crate::receiver::{Receiver, SendError};
use crate::rows::objects::ObjectPlace;
use crate::rows::tables::ParquetTables;
use crate::sources::credentials::CredentialFiles;

/// The default region of buckets.
const REGION: &str = "us-east-1";
/// The time for which a signed request is valid.
const SIGNED: Duration = Duration::from_secs(300);
/// The time that a request may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The characters of an answer that an error shows.
const SHOWN: usize = 300;

/// Options of a bucket.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct S3Options {
    bucket: String,
    /// The prefix of the names of objects.
    #[serde(default)]
    prefix: String,
    /// The region; by default the value of `AWS_REGION`, or else us-east-1.
    region: Option<String>,
    /// The address of a server other than AWS, such as `https://HOST:PORT`; by default the address
    /// in `AWS_ENDPOINT_URL`.
    endpoint: Option<String>,
    /// A file with `aws_access_key_id` and `aws_secret_access_key`, in AWS's format; by default the
    /// file in `AWS_SHARED_CREDENTIALS_FILE`, or else ~/.aws/credentials.
    credentials_file: Option<PathBuf>,
    /// Authorities that have signed the server's certificate (PEM).
    ca: Option<PathBuf>,
    /// The certificate that the stream shows (PEM).
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    /// The time for which windows are gathered for a file.
    #[serde(default = "duration::ten_seconds", deserialize_with = "duration::read")]
    every: Duration,
}

impl ReceiverOptions for S3Options {
    const NAME: &'static str = "s3";
    const SCHEMES: &'static [&'static str] = &["s3"];

    fn from_url(url: &ReceiverUrl) -> Result<Self, String> {
        let value = serde_json::json!({ "bucket": url.authority, "prefix": url.path });
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
        if self.bucket.is_empty() || !self.bucket.chars().all(is_name) {
            return Err((
                "bucket",
                "small letters, digits, . and - are expected, as in s3://BUCKET/PREFIX".to_owned(),
            ));
        }
        let found = bucket(self).map_err(|message| ("endpoint", message))?;
        for (field, file) in [("ca", &self.ca), ("cert", &self.cert), ("key", &self.key)] {
            if file.is_some() && found.base_url().scheme() != "https" {
                return Err((field, "certificates need an endpoint with https".to_owned()));
            }
        }
        if self.key.is_some() && self.cert.is_none() {
            return Err((
                "key",
                "a private key needs its certificate: name it as `cert`".to_owned(),
            ));
        }
        Ok(())
    }

    fn target(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.prefix)
    }

    fn identity(&self) -> String {
        let address = bucket(self)
            .map(|bucket| bucket.base_url().to_string())
            .unwrap_or_default();
        format!("{address} {}", self.prefix.trim_matches('/'))
    }

    fn receiver(self, setup: &ReceiverSetup) -> Box<dyn Receiver> {
        let every = if setup.once {
            duration::SOON.min(self.every)
        } else {
            self.every
        };
        Box::new(ParquetTables::new(
            BucketPlace {
                options: self,
                http: None,
            },
            every,
            setup.memory,
        ))
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the bucket with its address.
fn bucket(options: &S3Options) -> Result<Bucket, String> {
    let region = options
        .region
        .clone()
        .or_else(|| variable("AWS_REGION"))
        .unwrap_or_else(|| REGION.to_owned());
    let endpoint = options
        .endpoint
        .clone()
        .or_else(|| variable("AWS_ENDPOINT_URL"));
    // Servers other than AWS rarely have a separate host name for each bucket.
    let (endpoint, style) = match endpoint {
        Some(endpoint) => (endpoint, UrlStyle::Path),
        None => (
            format!("https://s3.{region}.amazonaws.com"),
            UrlStyle::VirtualHost,
        ),
    };
    let url = Url::parse(&endpoint).map_err(|_| "https://HOST:PORT is expected".to_owned())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("an address has no user and no password; name a file with the keys".to_owned());
    }
    Bucket::new(url, style, options.bucket.clone(), region).map_err(|error| error.to_string())
}

/// A bucket as a place for files.
struct BucketPlace {
    options: S3Options,
    /// `None` before the first use and after a failure: then it is made again.
    http: Option<S3Access>,
}

#[derive(Clone)]
struct S3Access {
    http: reqwest::Client,
    bucket: Bucket,
    credentials: Credentials,
}

impl BucketPlace {
    fn access(&mut self) -> Result<S3Access, SendError> {
        if let Some(access) = &self.http {
            return Ok(access.clone());
        }
        let bucket = bucket(&self.options).map_err(SendError::new)?;
        let [ca, cert, key] =
            [&self.options.ca, &self.options.cert, &self.options.key].map(Clone::clone);
        let files = CredentialFiles {
            token_file: None,
            ca,
            cert,
            key,
        };
        let is_tls = bucket.base_url().scheme() == "https";
        let access = S3Access {
            http: certified(reqwest::Client::builder().timeout(PATIENCE), &files, is_tls)?,
            bucket,
            credentials: credentials(self.options.credentials_file.as_deref())?,
        };
        self.http = Some(access.clone());
        Ok(access)
    }

    fn key(&self, path: &str) -> String {
        let prefix = self.options.prefix.trim_matches('/');
        if prefix.is_empty() {
            path.to_owned()
        } else {
            format!("{prefix}/{path}")
        }
    }
}

impl ObjectPlace for BucketPlace {
    fn list<'a>(
        &'a mut self,
        directory: &'a str,
        prefix: &'a str,
    ) -> BoxFuture<'a, Result<Vec<String>, SendError>> {
        async move {
            let (access, start) = (self.access()?, self.key(&format!("{directory}/")));
            let listed = list(&access, &format!("{start}{prefix}")).await;
            let keys = listed.inspect_err(|_| self.http = None)?;
            Ok(keys
                .iter()
                .filter_map(|key| key.strip_prefix(&start).map(str::to_owned))
                .collect())
        }
        .boxed()
    }

    fn put<'a>(
        &'a mut self,
        path: &'a str,
        content: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), SendError>> {
        async move {
            let (access, key) = (self.access()?, self.key(path));
            let url = access
                .bucket
                .put_object(Some(&access.credentials), &key)
                .sign(SIGNED);
            let sent = answered(&key, access.http.put(url).body(content).send().await).await;
            sent.map(drop).inspect_err(|_| self.http = None)
        }
        .boxed()
    }

    fn address(&self, path: &str) -> String {
        format!("s3://{}/{}", self.options.bucket, self.key(path))
    }
}

/// Returns the keys of the objects that begin with `prefix`.
async fn list(access: &S3Access, prefix: &str) -> Result<Vec<String>, SendError> {
    let (mut keys, mut next) = (Vec::new(), None::<String>);
    loop {
        let mut action = access.bucket.list_objects_v2(Some(&access.credentials));
        action.with_prefix(prefix.to_owned());
        // This program does not decode keys, so the server must not encode them.
        action.query_mut().remove("encoding-type");
        if let Some(token) = next.take() {
            action.with_continuation_token(token);
        }
        let url = action.sign(SIGNED);
        let text = answered(prefix, access.http.get(url).send().await).await?;
        let page = ListObjectsV2::parse_response(&text)
            .map_err(|error| SendError::caused("the list of objects is unreadable", &error))?;
        keys.extend(page.contents.into_iter().map(|object| object.key));
        match page.next_continuation_token {
            Some(token) => next = Some(token),
            None => return Ok(keys),
        }
    }
}

/// Returns the body of a successful answer. Errors do not show the address, which contains the
/// signature.
async fn answered(key: &str, sent: Result<Response, reqwest::Error>) -> Result<String, SendError> {
    let failed = |error: reqwest::Error| SendError::caused(key, &error.without_url());
    let response = sent.map_err(failed)?;
    let status = response.status();
    let text = response.text().await.map_err(failed)?;
    match status {
        StatusCode::OK => Ok(text),
        status => {
            let shown: String = text.chars().take(SHOWN).collect();
            Err(SendError::new(format!("{key}: {status} {shown}")))
        }
    }
}

/// Reads the keys from the named file, or else from where AWS's own programs find them.
fn credentials(file: Option<&Path>) -> Result<Credentials, SendError> {
    if let (None, Some(found)) = (file, Credentials::from_env()) {
        return Ok(found);
    }
    let shared = || variable("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".aws/credentials"));
    let path = file.map(Path::to_owned).or_else(shared).or_else(home);
    let path =
        path.ok_or_else(|| SendError::new("no keys: name a file with them as credentialsFile"))?;
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|error| SendError::caused(&path.display().to_string(), &error))?;
    let value = |name: &str| {
        text.lines().find_map(|line| {
            let (found, value) = line.split_once('=')?;
            (found.trim() == name).then(|| value.trim().to_owned())
        })
    };
    match (value("aws_access_key_id"), value("aws_secret_access_key")) {
        (Some(key), Some(secret)) => Ok(match value("aws_session_token") {
            Some(token) => Credentials::new_with_token(key, secret, token),
            None => Credentials::new(key, secret),
        }),
        _ => Err(SendError::new(format!(
            "{} has no aws_access_key_id and aws_secret_access_key",
            path.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_name_their_field() {
        for (more, field) in [
            (serde_json::json!({ "bucket": "A" }), "bucket"),
            (serde_json::json!({ "endpoint": "host" }), "endpoint"),
            (
                serde_json::json!({ "endpoint": "https://u:p@host" }),
                "endpoint",
            ),
            (
                serde_json::json!({ "endpoint": "http://host", "ca": "/ca" }),
                "ca",
            ),
            (
                serde_json::json!({ "endpoint": "http://host", "cert": "/c", "key": "/k" }),
                "cert",
            ),
            (serde_json::json!({ "key": "/k" }), "key"),
        ] {
            let mut value = serde_json::json!({ "bucket": "b" });
            value
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            let options: S3Options = serde_json::from_value(value).unwrap();
            assert_eq!(options.check().unwrap_err().0, field, "{more}");
        }
    }

    #[test]
    fn keys_are_read_from_a_file_and_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("credentials");
        std::fs::write(
            &path,
            "[default]\naws_access_key_id = AK\naws_secret_access_key=SK\n",
        )
        .unwrap();
        let found = credentials(Some(&path)).unwrap();
        assert_eq!((found.key(), found.secret()), ("AK", "SK"));
        std::fs::write(&path, "aws_secret_access_key=SK\n").unwrap();
        let error = credentials(Some(&path)).unwrap_err().to_string();
        assert!(
            error.contains("has no aws_access_key_id") && !error.contains("SK"),
            "{error}"
        );
    }
}
