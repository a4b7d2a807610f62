//! Against a server that answers what it is told to, over a socket and over TCP.

use std::path::Path;

use clap::Parser;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};

use super::*;

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: ClientCommand,
}

fn command(arguments: &[&str]) -> ClientCommand {
    Cli::try_parse_from([&["twinprobe"], arguments].concat()).expect("valid arguments").command
}

/// Answers one request per entry and returns what was asked.
async fn serve(socket: &Path, answers: &[(u16, &str)]) -> tokio::task::JoinHandle<Vec<String>> {
    let listener = UnixListener::bind(socket).unwrap();
    let answers: Vec<_> = answers.iter().map(|&(status, body)| (status, body.to_owned())).collect();
    tokio::spawn(async move {
        let mut asked = Vec::new();
        for (status, body) in answers {
            let (stream, _) = listener.accept().await.unwrap();
            asked.push(answer(stream, status, &body).await);
        }
        asked
    })
}

async fn answer(
    mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    status: u16,
    body: &str,
) -> String {
    let mut request = String::new();
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer).await.unwrap();
        request.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
        let Some((head, rest)) = request.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if n == 0 || rest.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            break;
        }
    }
    let response = format!("HTTP/1.1 {status} Status\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(response.as_bytes()).await.unwrap();
    request
}

#[tokio::test]
async fn apply_sends_every_probe_and_goes_on_after_a_refusal() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let file = directory.path().join("probes.yaml");
    std::fs::write(&file, "name: a\n---\nname: b/c\n---\nname: d\n").unwrap();
    let problem = r#"{"title": "Invalid probe", "errors": []}"#;
    let served = serve(&socket, &[(201, "{}"), (422, problem), (200, r#"{"warnings": []}"#)]).await;
    let apply = command(&["apply", "-f", file.to_str().unwrap(), "--interface", "veth7"]);
    let error = run(apply, &Server::Unix(socket)).await.unwrap_err();
    assert_eq!(error.to_string(), "1 of 3 probes were refused");
    let asked = served.await.unwrap();
    assert!(asked[0].starts_with("PUT /v1/probes/a HTTP/1.1\r\n"), "{}", asked[0]);
    assert!(asked[0].ends_with("\r\n\r\n{\"name\":\"a\",\"interface\":\"veth7\"}"), "{}", asked[0]);
    assert!(asked[0].contains("content-type: application/json\r\n"));
    assert!(asked[1].starts_with("PUT /v1/probes/b%2Fc "));
    assert!(asked[2].starts_with("PUT /v1/probes/d "));
}

#[tokio::test]
async fn the_other_commands_ask_what_they_should() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("flows.json");
    std::fs::write(&file, "{}").unwrap();
    for (arguments, status, start) in [
        (vec!["validate", "-f", file.to_str().unwrap()], 200, "POST /v1/validate "),
        (vec!["list"], 200, "GET /v1/probes "),
        (vec!["get", "flows"], 200, "GET /v1/probes/flows "),
        (vec!["delete", "flows"], 204, "DELETE /v1/probes/flows "),
        (vec!["metrics", "flows"], 200, "GET /v1/probes/flows/metrics "),
        (vec!["metrics", "flows", "-o", "xml"], 200, "GET /v1/probes/flows/metrics "),
    ] {
        let socket = directory.path().join("s");
        let served = serve(&socket, &[(status, if status == 204 { "" } else { "{}" })]).await;
        run(command(&arguments), &Server::Unix(socket.clone())).await.unwrap();
        let asked = served.await.unwrap().remove(0);
        assert!(asked.starts_with(start), "{asked}");
        let accept =
            if arguments.contains(&"xml") { "accept: application/xml," } else { "accept: application/json," };
        assert!(asked.contains(accept), "{asked}");
        if start.starts_with("POST") {
            assert!(asked.ends_with("{\"name\":\"flows\"}"), "{asked}");
        }
        std::fs::remove_file(socket).unwrap();
    }
}

#[tokio::test]
async fn a_refusal_is_the_error() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let served = serve(&socket, &[(404, r#"{"title": "Not found", "detail": "there is no probe x"}"#)]).await;
    let error = run(command(&["get", "x"]), &Server::Unix(socket.clone())).await.unwrap_err();
    assert_eq!(error.to_string(), "Not found: there is no probe x");
    served.await.unwrap();
    // The listener is gone.
    let error = run(command(&["list"]), &Server::Unix(socket)).await.unwrap_err();
    assert!(error.to_string().contains("is `twinprobe serve` running?"), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}

#[tokio::test]
async fn tcp_works_as_well() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server: Server = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let served = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        answer(stream, 200, "not JSON").await
    });
    let error = run(command(&["list"]), &server).await.unwrap_err();
    assert!(matches!(error, ClientError::NotJson { .. }), "{error:?}");
    assert!(served.await.unwrap().contains(&format!("host: {}\r\n", server.authority())));
}

#[test]
fn wrong_usage_is_found_by_the_parser() {
    for arguments in [&["apply"][..], &["get"], &["metrics", "x", "-o", "csv"], &["list", "x"]] {
        assert!(Cli::try_parse_from([&["twinprobe"], arguments].concat()).is_err(), "{arguments:?}");
    }
}
