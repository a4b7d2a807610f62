//! Tests of each call against a server that records the requests.

use std::collections::BTreeSet;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

use twinprobe_api::Rollback;

use super::*;
use crate::captures::Captures;
use crate::client::windows::WindowQuery;

/// Answers every request with `{}` and sends on its first line.
async fn serve(listener: UnixListener, lines: tokio::sync::mpsc::UnboundedSender<String>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut request = Vec::new();
        let head = loop {
            assert_ne!(
                stream.read_buf(&mut request).await.unwrap(),
                0,
                "the request is cut off"
            );
            let text = std::str::from_utf8(&request).unwrap();
            let end = match text {
                chunked if chunked.contains("chunked") => "\r\n0\r\n\r\n",
                parts if parts.contains("multipart/") => "--\r\n",
                document if document.contains("content-length") => "}",
                _ => "\r\n\r\n",
            };
            if text.contains("\r\n\r\n") && text.ends_with(end) {
                break text;
            }
        };
        lines
            .send(
                head.split(" HTTP/1.1\r\n")
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            )
            .unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            .await
            .unwrap();
    }
}

/// The console, the stream that it follows, and the nodes that it shows. Clients ask many daemons
/// themselves.
const FOR_BROWSERS: [&str; 6] = [
    "GET /",
    "GET /console/{file}",
    "GET /v1/changes",
    "GET /v1/nodes",
    "GET /v1/nodes/series",
    "GET /v1/nodes/windows",
];

/// The operations of `api/openapi.yaml` that are not for browsers, as method and path.
fn described() -> BTreeSet<String> {
    let description: Value =
        yaml_serde::from_str(include_str!("../../../../api/openapi.yaml")).unwrap();
    let mut found = BTreeSet::new();
    for (path, operations) in description["paths"].as_object().unwrap() {
        let methods = operations
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| *key != "parameters");
        found.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    FOR_BROWSERS
        .iter()
        .for_each(|operation| assert!(found.remove(*operation), "{operation}"));
    found
}

#[tokio::test]
async fn there_is_a_call_for_each_route() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let (lines, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let served = tokio::spawn(serve(UnixListener::bind(&socket).unwrap(), lines));
    let (client, config) = (
        Client::new(Server::Unix(socket), &Credentials::default()).unwrap(),
        ConfigDocument::default(),
    );
    client.put("{name}", &config, None).await.unwrap();
    client.probes().await.unwrap();
    client.status("{name}").await.unwrap();
    client.delete("{name}", None).await.unwrap();
    client.history(Some("{name}")).await.unwrap();
    client.history(None).await.unwrap();
    client.revisions("{name}").await.unwrap();
    client.mark("{name}", "text").await.unwrap();
    client
        .roll_back("{name}", Rollback { revision: None }, None)
        .await
        .unwrap();
    client.entries("{name}", "{map}").await.unwrap();
    client
        .put_entries("{name}", "{map}", &[], None)
        .await
        .unwrap();
    client.validate(&config).await.unwrap();
    let capture = directory.path().join("capture");
    std::fs::write(&capture, "").unwrap();
    let captures = Captures {
        capture: Some(capture),
        ..Captures::default()
    };
    client.replay(&config, &captures, JSON).await.unwrap();
    client
        .metrics("{name}", JSON, LargestEntries::default())
        .await
        .unwrap();
    client.close_window("{name}", JSON).await.unwrap();
    client
        .windows("{name}", WindowQuery::default())
        .await
        .unwrap();
    client
        .window("{name}", 7, JSON, LargestEntries::default())
        .await
        .unwrap();
    let _ = client.shape("{name}", 7).await;
    client.acknowledge("{name}", 7, None).await.unwrap();
    client.series("{name}", &[]).await.unwrap();
    client.past_series("{name}", &[]).await.unwrap();
    assert_eq!(
        client
            .events("{name}", None)
            .await
            .unwrap()
            .next()
            .await
            .unwrap()
            .unwrap(),
        b"{}"
    );
    let rule = serde_json::json!({ "watch": "p", "when": "true", "do": [] });
    let rule = serde_json::from_value(rule).unwrap();
    client.rules().await.unwrap();
    client.rule("{name}").await.unwrap();
    client.put_rule("{name}", &rule, None).await.unwrap();
    client.delete_rule("{name}", None).await.unwrap();
    client.rule_revisions("{name}").await.unwrap();
    client
        .roll_rule_back("{name}", Rollback::default(), None)
        .await
        .unwrap();
    client.templates().await.unwrap();
    client.template("{name}").await.unwrap();
    client.put_template("{name}", &config, None).await.unwrap();
    client.delete_template("{name}", None).await.unwrap();
    client.try_rule(&rule, None, &captures, &[]).await.unwrap();
    client.names(&[], &[]).await.unwrap();
    client.pods().await.unwrap();
    client
        .put_pods(&twinprobe_api::PodTable::default())
        .await
        .unwrap();
    client.capabilities().await.unwrap();
    client.scrape().await.unwrap();
    client.health().await.unwrap();
    client.ready().await.unwrap();
    assert_eq!(client.description().await.unwrap(), "{}");
    assert_eq!(client.xml_schema().await.unwrap(), "{}");
    served.abort();
    let mut calls = BTreeSet::new();
    while let Some(line) = asked.recv().await {
        let line = line.split('?').next().unwrap_or_default();
        calls.insert(
            line.replace("%7Bname%7D", "{name}")
                .replace("%7Bmap%7D", "{map}")
                .replace("/7", "/{seq}"),
        );
    }
    assert_eq!(calls, described());
}

#[tokio::test]
async fn queries_hold_what_was_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let (lines, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let served = tokio::spawn(serve(UnixListener::bind(&socket).unwrap(), lines));
    let client = Client::new(Server::Unix(socket), &Credentials::default()).unwrap();
    let query = WindowQuery {
        after: Some(3),
        wait: Some(60),
        collector: Some("a&b c"),
    };
    client.windows("p", query).await.unwrap();
    assert_eq!(
        asked.recv().await.unwrap(),
        "GET /v1/probes/p/windows?after=3&wait=60&collector=a%26b+c"
    );
    client.windows("p", WindowQuery::default()).await.unwrap();
    assert_eq!(asked.recv().await.unwrap(), "GET /v1/probes/p/windows");
    client
        .put("p", &ConfigDocument::default(), Some("why & how"))
        .await
        .unwrap();
    assert_eq!(
        asked.recv().await.unwrap(),
        "PUT /v1/probes/p?message=why+%26+how"
    );
    client.events("p", Some("a=b")).await.unwrap();
    assert_eq!(
        asked.recv().await.unwrap(),
        "GET /v1/probes/p/events?metric=a%3Db"
    );
    // The segments `.` and `..` of a path mean a directory, in any encoding.
    assert!(matches!(
        client.status("..").await,
        Err(ClientError::Name(_))
    ));
    assert!(asked.try_recv().is_err(), "nothing was asked");
    served.abort();
}
