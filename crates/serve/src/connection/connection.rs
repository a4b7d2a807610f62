//! One connection: its requests, one after the other, and its end.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::Instrument as _;
use twinprobe_api::Problem;

use crate::connection::body::{Answered, Rest, Upload};
use crate::connection::connections::Full;
use crate::connection::counts::Cut;
use crate::connection::progress::{ConnectionProgress, Phase};
use crate::connection::request::{RequestId, X_REQUEST_ID};
use twinprobe_access::Peer;

/// The largest head of a request, in bytes.
const HEAD: usize = 16 << 10;
/// The most bytes of an answer that wait for the client.
const BUFFER: usize = 64 << 10;
/// The time for which a connection is read after its last answer: a close with data in transit
/// would take the answer from the client.
const LINGER: Duration = Duration::from_secs(1);

/// The time for the rest of a request's head once the daemon stops.
const LAST: Duration = Duration::from_secs(2);

/// A socket of either kind, encrypted or not.
pub trait ClientSocket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ClientSocket for S {}

/// Answers requests until the client leaves or takes too long, or until the daemon stops (`stopped`
/// becomes true). Returns the reason if the client took too long.
pub async fn serve(
    socket: Box<dyn ClientSocket>,
    router: Router,
    peer: Peer,
    progress: Arc<ConnectionProgress>,
    mut stopped: watch::Receiver<bool>,
) -> Option<Cut> {
    let shared = Arc::clone(&progress);
    let service = service_fn(move |request| {
        answer(router.clone(), peer.clone(), Arc::clone(&shared), request)
    });
    let mut connection = http1::Builder::new()
        // The deadlines are those of `ConnectionProgress`.
        .header_read_timeout(None)
        .max_header_size(HEAD)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(socket), service);
    let mut timer = pin!(sleep_until(Instant::now()));
    let mut last: Option<Instant> = None;
    loop {
        let ended = poll_fn(|context| {
            if Pin::new(&mut connection).poll(context).is_ready() {
                return Poll::Ready(None);
            }
            // The deadline may have moved with the connection's last step.
            let Some((deadline, overdue)) = progress.deadline() else {
                return Poll::Pending;
            };
            let last = last.filter(|_| overdue != Cut::Write);
            let deadline = last.map_or(deadline, |last| deadline.min(last));
            if timer.deadline() != deadline {
                timer.as_mut().reset(deadline);
            }
            timer.as_mut().poll(context).map(|()| Some(overdue))
        });
        tokio::select! {
            ended = ended => match ended {
                None => break,
                overdue => return overdue,
            },
            // An error means that the sender was dropped: stop, too.
            _ = stopped.wait_for(|stopped| *stopped), if last.is_none() => {
                if matches!(progress.phase().0, Phase::Fresh | Phase::Idle) {
                    return None;
                }
                last = Some(Instant::now() + LAST);
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    }
    progress.end();
    linger(connection.into_parts().io.into_inner()).await;
    None
}

async fn answer(
    router: Router,
    peer: Peer,
    progress: Arc<ConnectionProgress>,
    request: Request<Incoming>,
) -> Result<Response<Answered>, Infallible> {
    progress.begin();
    let id = RequestId::of(request.headers());
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(peer);
    parts.extensions.insert(id.clone());
    let rest = Rest::default();
    let body = if body.is_end_stream() {
        Body::empty()
    } else {
        let is_sent = !parts.headers.contains_key(header::EXPECT);
        Body::new(Upload::new(
            body,
            is_sent,
            progress.limits.body_timeout,
            rest.clone(),
        ))
    };
    let span = tracing::error_span!("request", id = id.as_str());
    let answered = TowerToHyperService::new(router).call(Request::from_parts(parts, body));
    let Ok(mut response) = answered.instrument(span).await;
    rest.drain(&progress).await;
    response.headers_mut().insert(X_REQUEST_ID, id.0);
    Ok(response.map(|body| Answered { body, progress }))
}

/// Refuses a connection for lack of room.
pub async fn refuse(mut socket: Box<dyn ClientSocket>, Full { option, limit }: Full) {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let detail =
        format!("{limit} connections are open, which is the limit ({option}); try again later");
    let body = serde_json::to_string(&Problem::new(status, detail)).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\nretry-after: 1\r\n\
         connection: close\r\n{X_REQUEST_ID}: {}\r\n\r\n{body}",
        body.len(),
        RequestId::next().as_str(),
    );
    if let Ok(Ok(())) = timeout(LINGER, socket.write_all(answer.as_bytes())).await {
        linger(socket).await;
    }
}

/// Tells the client that the answer is complete, and reads data in transit.
async fn linger(mut socket: Box<dyn ClientSocket>) {
    let read = async {
        let _ = socket.shutdown().await;
        let mut buffer = vec![0; 4 << 10];
        while socket.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {}
    };
    let _ = timeout(LINGER, read).await;
}
