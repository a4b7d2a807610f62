//! Tests against a server with prepared answers, over a Unix socket and over TCP.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Parser;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use twinprobe_client::{ClientError, Credentials, NamedServer, Server};

use crate::args::ClientCommand;
use crate::error::CommandError;
use crate::fleet::fleet::Fleet;
use crate::fleet::session::Session;
use crate::report::reporter::Reporter;

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: ClientCommand,
}

async fn run(command: ClientCommand, server: Server) -> Result<(), CommandError> {
    let fleet = Fleet::new(
        vec![NamedServer {
            name: "here".to_owned(),
            server,
            labels: BTreeMap::new(),
            line: 0,
        }],
        &Credentials::default(),
    )
    .unwrap();
    command
        .run(&Session {
            fleet,
            reporter: Reporter::new(false),
        })
        .await
}

fn command(arguments: &[&str]) -> ClientCommand {
    Cli::try_parse_from([&["twinprobe"], arguments].concat())
        .expect("valid arguments")
        .command
}

/// Answers one request per entry and returns the requests.
async fn serve(socket: &Path, answers: &[(u16, &str)]) -> tokio::task::JoinHandle<Vec<String>> {
    let listener = UnixListener::bind(socket).unwrap();
    let answers: Vec<_> = answers
        .iter()
        .map(|&(status, body)| (status, body.to_owned()))
        .collect();
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
        let Some((head, rest)) = request.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        if n == 0 || rest.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            break;
        }
    }
    let response = format!(
        "HTTP/1.1 {status} Status\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(response.as_bytes()).await.unwrap();
    request
}

const STATUS: &str = r#"{"name": "flows", "state": "running", "revision": 1, "created": "2026-11-21T10:00:00Z",
    "interfaces": [], "programs": {}, "windows": {"retained": 0, "bytes": 0, "oldest": null, "newest": null, "lost": 0,
    "damaged": 0}, "warnings": [], "config": {"interface": "eth0"}}"#;

#[tokio::test]
async fn apply_sends_every_probe_and_goes_on_after_a_refusal() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let file = directory.path().join("probes.yaml");
    std::fs::write(&file, "name: a\n---\nname: b/c\n---\nname: d\n").unwrap();
    let problem = r#"{"title": "Invalid probe", "errors": []}"#;
    let served = serve(
        &socket,
        &[(201, "{}"), (422, problem), (200, r#"{"warnings": []}"#)],
    )
    .await;
    let apply = command(&[
        "apply",
        "-f",
        file.to_str().unwrap(),
        "--interface",
        "veth7",
    ]);
    let error = run(apply, Server::Unix(socket)).await.unwrap_err();
    assert_eq!(error.to_string(), "1 of 3 probes were refused");
    let asked = served.await.unwrap();
    assert!(
        asked[0].starts_with("PUT /v1/probes/a HTTP/1.1\r\n"),
        "{}",
        asked[0]
    );
    assert!(
        asked[0].ends_with("\r\n\r\n{\"name\":\"a\",\"interface\":\"veth7\"}"),
        "{}",
        asked[0]
    );
    assert!(asked[0].contains("content-type: application/json\r\n"));
    assert!(asked[1].starts_with("PUT /v1/probes/b%2Fc "));
    assert!(asked[2].starts_with("PUT /v1/probes/d "));
}

#[tokio::test]
async fn apply_takes_probes_of_the_library_for_an_interface_and_a_hook() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let served = serve(&socket, &[(201, "{}")]).await;
    let apply = command(&[
        "apply",
        "--probe",
        "packet-counter",
        "--interface",
        "veth7",
        "--hook",
        "tc",
    ]);
    run(apply, Server::Unix(socket.clone())).await.unwrap();
    let asked = served.await.unwrap();
    assert!(
        asked[0].starts_with("PUT /v1/probes/packet-counter HTTP/1.1\r\n"),
        "{}",
        asked[0]
    );
    let (_, body) = asked[0].split_once("\r\n\r\n").unwrap();
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        (&body["interface"], &body["ingress"]["hook"]),
        (&"veth7".into(), &"tc".into())
    );
    assert_eq!(body["ingress"].get("mode"), None);
    for unknown in [vec!["other"], vec!["packet-counter", "--hook", "qdisc"]] {
        let apply =
            command(&[&["apply", "--interface", "veth7", "--probe"], &unknown[..]].concat());
        let error = run(apply, Server::Unix(socket.clone())).await.unwrap_err();
        assert!(matches!(error, CommandError::Library(_)), "{error}");
    }
    for wrong in [
        &["apply"][..],
        &["apply", "--probe", "packet-counter"],
        &["apply", "-f", "a", "--hook", "tc"],
    ] {
        assert!(
            Cli::try_parse_from([&["twinprobe"], wrong].concat()).is_err(),
            "{wrong:?}"
        );
    }
}

#[tokio::test]
async fn the_other_commands_ask_what_they_should() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("flows.json");
    std::fs::write(&file, "{}").unwrap();
    for (arguments, status, start) in [
        (
            vec!["validate", "-f", file.to_str().unwrap()],
            200,
            "POST /v1/validate ",
        ),
        (vec!["list"], 200, "GET /v1/probes "),
        (vec!["get", "flows"], 200, "GET /v1/probes/flows "),
        (vec!["delete", "flows"], 204, "DELETE /v1/probes/flows "),
        (
            vec!["metrics", "flows"],
            200,
            "GET /v1/probes/flows/metrics ",
        ),
        (
            vec!["metrics", "flows", "-o", "xml"],
            200,
            "GET /v1/probes/flows/metrics ",
        ),
        (
            vec!["windows", "flows", "-o", "json"],
            200,
            "GET /v1/probes/flows/windows ",
        ),
        (
            vec!["windows", "flows", "-o", "json", "--after", "7"],
            200,
            "GET /v1/probes/flows/windows?after=7 ",
        ),
        (
            vec!["windows", "flows", "--get", "3"],
            200,
            "GET /v1/probes/flows/windows/3 ",
        ),
        (
            vec!["windows", "flows", "--get", "3", "-o", "xml"],
            200,
            "GET /v1/probes/flows/windows/3 ",
        ),
        (
            vec!["windows", "flows", "--ack", "3"],
            204,
            "DELETE /v1/probes/flows/windows/3 ",
        ),
        (
            vec!["windows", "flows", "--ack", "3", "--collector", "a"],
            204,
            "DELETE /v1/probes/flows/windows/3?collector=a ",
        ),
        (
            vec!["windows", "flows", "--close", "-o", "xml"],
            201,
            "POST /v1/probes/flows/windows ",
        ),
    ] {
        let socket = directory.path().join("s");
        let served = serve(
            &socket,
            &[(
                status,
                match arguments[0] {
                    "list" => r#"{"probes": []}"#,
                    _ if status == 204 => "",
                    _ => "{}",
                },
            )],
        )
        .await;
        run(command(&arguments), Server::Unix(socket.clone()))
            .await
            .unwrap();
        let asked = served.await.unwrap().remove(0);
        assert!(asked.starts_with(start), "{asked}");
        let accept = if arguments.contains(&"xml") {
            "accept: application/xml,"
        } else {
            "accept: application/json,"
        };
        assert!(asked.contains(accept), "{asked}");
        if start.starts_with("POST /v1/validate") {
            assert!(asked.ends_with("{\"name\":\"flows\"}"), "{asked}");
        }
        std::fs::remove_file(socket).unwrap();
    }
}

#[tokio::test]
async fn a_refusal_is_the_error() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let served = serve(
        &socket,
        &[(
            404,
            r#"{"title": "Not found", "detail": "there is no probe x"}"#,
        )],
    )
    .await;
    let error = run(command(&["get", "x"]), Server::Unix(socket.clone()))
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "Not found: there is no probe x");
    served.await.unwrap();
    // The listener is closed.
    let error = run(command(&["list"]), Server::Unix(socket))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("is `twinprobe serve` running?"),
        "{error}"
    );
    assert!(std::error::Error::source(&error).is_some());
}

#[tokio::test]
async fn tcp_works_as_well() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server: Server = format!("http://{address}").parse().unwrap();
    let served = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        answer(stream, 200, "not JSON").await
    });
    let error = run(command(&["list"]), server).await.unwrap_err();
    assert!(
        matches!(error, CommandError::Client(ClientError::Content { .. })),
        "{error:?}"
    );
    assert!(
        served
            .await
            .unwrap()
            .contains(&format!("host: {address}\r\n"))
    );
}

const FOUND: (u16, &str) = (200, STATUS);
const NOT_FOUND: (u16, &str) = (404, r#"{"title": "Not Found"}"#);
const NONE: (u16, &str) = (200, r#"{"windows": [], "lost_windows": 0}"#);
const DOCUMENT: (u16, &str) = (200, r#"{"probe": "flows"}"#);

/// Returns the first line of each request, without the version of HTTP.
fn lines(asked: &[String]) -> Vec<&str> {
    asked
        .iter()
        .map(|request| request.split(" HTTP/1.1").next().unwrap_or_default())
        .collect()
}

#[tokio::test]
async fn each_window_is_printed_and_acknowledged_once_until_the_probe_is_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let two = r#"{"windows": [{"seq": 4, "start": "", "end": "", "bytes": 1},
        {"seq": 6, "start": "", "end": "", "bytes": 1}], "lost_windows": 1}"#;
    let one = r#"{"windows": [{"seq": 7, "start": "", "end": "", "bytes": 1}], "lost_windows": 0}"#;
    let gone = (
        404,
        r#"{"title": "Not Found", "detail": "window 7 was acknowledged"}"#,
    );
    let answers = [
        FOUND,
        (200, two),
        DOCUMENT,
        (204, ""),
        DOCUMENT,
        (204, ""),
        NONE,
        (200, one),
        gone,
        NOT_FOUND,
    ];
    let served = serve(&socket, &answers).await;
    let watch = command(&["watch", "flows", "--ack", "--collector", "a", "-o", "xml"]);
    let error = run(watch, Server::Unix(socket)).await.unwrap_err();
    assert_eq!(error.to_string(), "probe flows was deleted");
    let asked = served.await.unwrap();
    let expected = [
        "GET /v1/probes/flows",
        "GET /v1/probes/flows/windows?wait=60&collector=a",
        "GET /v1/probes/flows/windows/4",
        "DELETE /v1/probes/flows/windows/4?collector=a",
        "GET /v1/probes/flows/windows/6",
        "DELETE /v1/probes/flows/windows/6?collector=a",
        "GET /v1/probes/flows/windows?after=6&wait=60&collector=a",
        "GET /v1/probes/flows/windows?after=6&wait=60&collector=a",
        "GET /v1/probes/flows/windows/7",
        "GET /v1/probes/flows/windows?after=7&wait=60&collector=a",
    ];
    assert_eq!(lines(&asked), expected);
    assert!(
        asked[2].contains("accept: application/xml,"),
        "{}",
        asked[2]
    );
}

#[tokio::test]
async fn a_watch_goes_on_after_a_restart_and_ends_with_the_probe() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let one = r#"{"windows": [{"seq": 1, "start": "", "end": "", "bytes": 1}], "lost_windows": 0}"#;
    // The watch prints the window, and no server takes the acknowledgement.
    let served = serve(&socket, &[FOUND, (200, one), DOCUMENT]).await;
    let server = Server::Unix(socket.clone());
    let restart = async {
        assert_eq!(served.await.unwrap().len(), 3);
        std::fs::remove_file(&socket).unwrap();
        let unready = (503, r#"{"title": "Service Unavailable"}"#);
        let other = STATUS.replace("2026-11-21", "2026-11-22");
        serve(
            &socket,
            &[unready, FOUND, (204, ""), NONE, unready, (200, &other)],
        )
        .await
        .await
        .unwrap()
    };
    let watch = run(
        command(&["watch", "flows", "--after", "0", "--ack"]),
        server,
    );
    let (watched, asked) = tokio::join!(watch, restart);
    assert_eq!(watched.unwrap_err().to_string(), "probe flows was deleted");
    // The first request is either the one during the restart or the next one: both fail.
    let expected = [
        "GET /v1/probes/flows",
        "DELETE /v1/probes/flows/windows/1",
        "GET /v1/probes/flows/windows?after=1&wait=0",
        "GET /v1/probes/flows/windows?after=1&wait=60",
        "GET /v1/probes/flows",
    ];
    assert_eq!(lines(&asked)[1..], expected);
}

#[tokio::test]
async fn a_watch_needs_a_daemon_and_a_probe_to_begin_with() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let server = Server::Unix(socket.clone());
    let watch = || run(command(&["watch", "x"]), server.clone());
    let error = watch().await.unwrap_err();
    assert!(
        error.to_string().contains("is `twinprobe serve` running?"),
        "{error}"
    );
    let served = serve(
        &socket,
        &[(
            404,
            r#"{"title": "Not Found", "detail": "there is no probe x"}"#,
        )],
    )
    .await;
    assert_eq!(
        watch().await.unwrap_err().to_string(),
        "Not Found: there is no probe x"
    );
    served.await.unwrap();
}

#[test]
fn wrong_usage_is_found_by_the_parser() {
    for arguments in [
        &["apply"][..],
        &["get"],
        &["metrics", "x", "-o", "csv"],
        &["list", "x"],
        &["windows"],
        &["windows", "x", "-o", "xml"],
        &["windows", "x", "--get", "1", "--ack", "1"],
        &["windows", "x", "--get", "1", "--close"],
        &["windows", "x", "--get", "1", "--collector", "a"],
        &["windows", "x", "--ack", "1", "--after", "1"],
        &["windows", "x", "--ack", "1", "-o", "json"],
        &["windows", "x", "--get", "-1"],
        &["watch"],
        &["watch", "x", "--wait", "1"],
    ] {
        assert!(
            Cli::try_parse_from([&["twinprobe"], arguments].concat()).is_err(),
            "{arguments:?}"
        );
    }
}

#[tokio::test]
async fn a_range_of_windows_must_not_end_before_it_begins() {
    let reversed = [
        "windows",
        "x",
        "--from",
        "2026-11-21T10:00:00Z",
        "--to",
        "2026-11-21T09:00:00Z",
    ];
    let error = run(command(&reversed), Server::Unix("/nowhere".into()))
        .await
        .unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.status()),
        ("--from is not before --to", 2)
    );
}

#[tokio::test]
async fn a_series_of_a_key_from_the_heading_is_asked_for_as_in_documents() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let chart = |series: &str| {
        format!(
            r#"{{"probe":"p","metric":"m","direction":"ingress","field":"bytes","shows":"increase","times":[],
            "seconds":[],"windows":0,"left_out":0,"series":[{series}]}}"#
        )
    };
    let known = r#"{"key":{"interface":"s0","address":"192.0.2.1"},"total":1,"values":[]}"#;
    let answers = [chart(""), chart(known), chart(known)];
    let server = serve(&socket, &answers.each_ref().map(|answer| (200, &**answer))).await;
    let asked = ["series", "p", "m", "--only", "s0 192.0.2.1", "--top", "3"];
    run(command(&asked), Server::Unix(socket)).await.unwrap();
    let requests = server.await.unwrap();
    assert!(
        requests[1].contains("top=100") && !requests[1].contains("key="),
        "{requests:?}"
    );
    assert!(
        requests[2].contains("top=3") && requests[2].contains("%22address%22"),
        "{requests:?}"
    );
}
