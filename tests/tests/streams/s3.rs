//! A bucket of S3: the server of moto, read by boto3 and DuckDB.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use twinprobe_tests::certificates::Certificates;
use twinprobe_tests::scaled;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::{
    COLLECTOR, Node, configuration, duckdb, free_port, kill_in_turn, stream_command, tool,
};

/// Makes the bucket, or copies all of its objects into a directory.
const BOTO: &str = "import boto3, os, sys
s3 = boto3.client('s3', endpoint_url=sys.argv[1], verify=os.environ.get('CA'), region_name='us-east-1', aws_access_key_id='AK', aws_secret_access_key='SK')
if len(sys.argv) == 2:
    s3.create_bucket(Bucket='windows')
else:
    for page in s3.get_paginator('list_objects_v2').paginate(Bucket='windows'):
        for found in page.get('Contents', []):
            path = os.path.join(sys.argv[2], found['Key'])
            os.makedirs(os.path.dirname(path), exist_ok=True)
            s3.download_file('windows', found['Key'], path)
";

/// A server; a drop kills the process.
struct Server {
    child: Child,
    url: String,
    /// The certificates of a server with TLS.
    tls: Option<Certificates>,
}

impl Server {
    fn new(tls: Option<Certificates>) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(tool("moto/bin/moto_server")?);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        if let Some(files) = &tls {
            command
                .arg("-c")
                .arg(files.path("server"))
                .arg("-k")
                .arg(files.path("server-key"));
        }
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let server = Self {
            child,
            url: format!("{scheme}://127.0.0.1:{port}"),
            tls,
        };
        wait_for("moto_server", PATIENCE, || {
            std::net::TcpStream::connect(("127.0.0.1", port))
                .map(drop)
                .context("it listens")
        })?;
        Ok(server)
    }

    fn boto(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(tool("moto/bin/python")?);
        command.envs(
            self.tls
                .as_ref()
                .map(|files| ("CA", files.path("authority"))),
        );
        let output = command
            .args(["-c", BOTO, &self.url])
            .args(arguments)
            .output()?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn keys(directory: &Path) -> Result<PathBuf> {
    let keys = directory.join("keys");
    std::fs::write(
        &keys,
        "[default]\naws_access_key_id = AK\naws_secret_access_key = SK\n",
    )?;
    Ok(keys)
}

/// TLS: a server whose certificate has no signature of an authority gets nothing.
#[test]
fn tls_needs_the_authority() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let files = Certificates::new(directory.path())?;
    let [ca, other, cert, key] =
        ["authority", "other", "client", "client-key"].map(|name| files.path(name));
    let server = Server::new(Some(files))?;
    server.boto(&[])?;
    let keys = keys(directory.path())?;
    let node = Node::new("node-0")?;
    node.deploy(&json!({ "collectors": [COLLECTOR] }));
    node.daemon()
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
    let send = |ca: &Path| -> Result<Output> {
        let to = json!([{ "s3": { "bucket": "windows", "endpoint": server.url, "credentialsFile": keys, "ca": ca,
                                  "cert": cert, "key": key, "every": "100ms" } }]);
        let config = configuration(directory.path(), &[&node], &to, &json!({}))?;
        Ok(stream_command(&["-f", &config.display().to_string(), "--once"])?.output()?)
    };
    let refused = send(&other)?;
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(
        !refused.status.success() && error.contains("certificate") && !error.contains("SK"),
        "{error}"
    );
    ensure!(node.unacknowledged() == 1, "nothing is acknowledged");
    let sent = send(&ca)?;
    ensure!(
        sent.status.success(),
        "{}",
        String::from_utf8_lossy(&sent.stderr)
    );
    let copy = directory.path().join("copy");
    server.boto(&[&copy.display().to_string()])?;
    ensure!(node.unacknowledged() == 0 && copy.join("p/windows").is_dir());
    Ok(())
}

/// Streams are killed at any moment. The bucket has each window and each packet once.
#[test]
fn a_bucket_has_each_packet_once_whatever_is_killed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let server = Server::new(None)?;
    server.boto(&[])?;
    let keys = keys(directory.path())?;
    let mut node = Node::new("node-0")?;
    node.deploy(&json!({ "interval": "50ms", "retain": 10_000, "collectors": [COLLECTOR] }));
    let traffic = node.traffic()?;
    let to = json!([{ "s3": { "bucket": "windows", "prefix": "a/b", "endpoint": server.url, "credentialsFile": keys, "every": "100ms" } }]);
    let config = configuration(directory.path(), &[&node], &to, &json!({}))?;
    kill_in_turn(&mut node, &config, scaled(5, 150), None)?;
    let sent = traffic.stop()?;
    node.daemon()
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
    let output = stream_command(&["-f", &config.display().to_string(), "--once"])?.output()?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success() && !error.contains("SK"), "{error}");
    let copy = directory.path().join("copy");
    server.boto(&[&copy.display().to_string()])?;
    let path = copy.display();
    let counted = duckdb(&format!(
        "SELECT sum(value)::BIGINT FROM read_parquet('{path}/a/b/p/ingress.packets/**/*.parquet')"
    ))?;
    let seqs = duckdb(&format!(
        "SELECT count(*), count(DISTINCT seq), max(seq)::BIGINT FROM read_parquet('{path}/a/b/p/windows/**/*.parquet')"
    ))?;
    ensure!(counted[0][0] == sent, "{sent} were sent: {counted}");
    ensure!(
        seqs[0][0] == seqs[0][1] && seqs[0][1] == seqs[0][2],
        "{seqs}"
    );
    Ok(())
}
