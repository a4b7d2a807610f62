//! Refusals of requests with bodies: clients that send everything before they read see the answer.

use std::io::{Read, Write};

use anyhow::{Context, Result};

use crate::scene::{Scene, answer};

const MIB: usize = 1 << 20;

/// Sends the whole request, then reads, as simple clients do. Returns the status.
fn send(mut stream: impl Read + Write, head: &str, body: &[u8], chunked: bool) -> Result<u16> {
    write!(stream, "{head}\r\nhost: localhost\r\n").context("send the head")?;
    if chunked {
        write!(stream, "transfer-encoding: chunked\r\n\r\n")?;
        for chunk in body.chunks(MIB / 2) {
            write!(stream, "{:x}\r\n", chunk.len()).context("send a chunk")?;
            stream.write_all(chunk).context("send a chunk")?;
            stream.write_all(b"\r\n")?;
        }
        stream.write_all(b"0\r\n\r\n")?;
    } else {
        write!(stream, "content-length: {}\r\n\r\n", body.len())?;
        stream.write_all(body).context("send the body")?;
    }
    Ok(answer(&mut stream)?.status)
}

#[test]
fn refusals_reach_clients_that_send_everything_first() -> Result<()> {
    let scene = Scene::new("--listen 127.0.0.1:0 --insecure")?;
    let body = vec![b' '; 48 * MIB];
    const JSON: &str = "content-type: application/json";
    for (head, size, status) in [
        ("PUT /v2 HTTP/1.1".to_owned(), 8 * MIB, 404),
        ("PATCH /v1/probes/q HTTP/1.1".to_owned(), 8 * MIB, 405),
        (
            "PUT /v1/probes/q HTTP/1.1\r\ncontent-type: text/html".to_owned(),
            8 * MIB,
            415,
        ),
        (format!("PUT /v1/probes/q HTTP/1.1\r\n{JSON}"), 3 * MIB, 413),
        (
            format!("PUT /v1/probes/q HTTP/1.1\r\n{JSON}"),
            48 * MIB,
            413,
        ),
        (
            format!("POST /v1/probes/nosuch/rollback HTTP/1.1\r\n{JSON}"),
            8 * MIB,
            413,
        ),
        ("DELETE /v1/probes/nosuch HTTP/1.1".to_owned(), 8 * MIB, 415),
        (
            format!("DELETE /v1/probes/nosuch HTTP/1.1\r\n{JSON}"),
            8 * MIB,
            404,
        ),
    ] {
        for chunked in [false, true] {
            let say = || format!("{head}, {size} bytes, chunked: {chunked}");
            assert_eq!(
                send(scene.connect()?, &head, &body[..size], chunked).with_context(say)?,
                status,
                "{head}"
            );
            assert_eq!(
                send(scene.connect_tcp(0)?, &head, &body[..size], chunked).with_context(say)?,
                status
            );
        }
    }
    Ok(())
}

#[test]
fn a_connection_goes_on_after_a_refusal() -> Result<()> {
    let scene = Scene::new("")?;
    let mut stream = scene.connect()?;
    for _ in 0..3 {
        assert_eq!(
            send(&mut stream, "PUT /v2 HTTP/1.1", &vec![b' '; MIB], false)?,
            404
        );
    }
    Ok(())
}

/// A client may wait until the daemon asks for its body. If the request is refused, the daemon
/// neither asks nor waits for the body.
#[test]
fn bodies_are_not_asked_for_in_vain() -> Result<()> {
    let scene = Scene::new("")?;
    for (head, status) in [
        (
            "PUT /v2 HTTP/1.1\r\ncontent-length: 1000\r\nexpect: 100-continue",
            "404",
        ),
        (
            "PUT /v1/probes/q HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 9999999\r\n\
             expect: 100-continue",
            "413",
        ),
        // The client never sends the promised body.
        ("PUT /v2 HTTP/1.1\r\ncontent-length: 1000", "404"),
    ] {
        let mut stream = scene.begin(head)?;
        stream.write_all(b"\r\n")?;
        // A daemon that waited for the body would answer 408, or not at all.
        let mut first = [0; 12];
        stream.read_exact(&mut first)?;
        assert_eq!(first, format!("HTTP/1.1 {status}").as_bytes(), "{head}");
    }
    let mut stream =
        scene.begin("POST /v1/validate HTTP/1.1\r\ncontent-length: 2\r\nexpect: 100-continue")?;
    stream.write_all(b"content-type: application/json\r\n\r\n")?;
    let mut first = [0; 12];
    stream.read_exact(&mut first)?;
    assert_eq!(&first, b"HTTP/1.1 100");
    Ok(())
}
