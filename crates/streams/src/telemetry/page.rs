//! `/metrics` and `/healthz` of the stream itself.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::routing::get;
use tokio::net::TcpListener;

use super::meter::StreamMeter;
use crate::run::stopping::Stopping;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Binds the address. Returns the page with its port.
pub async fn bind(address: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// Serves until the stream stops.
pub async fn serve(listener: TcpListener, meter: Arc<StreamMeter>, stopping: Stopping) {
    let metrics = move || async move { ([(header::CONTENT_TYPE, OPENMETRICS)], meter.render()) };
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }));
    let served = axum::serve(listener, router)
        .with_graceful_shutdown(async move { stopping.stopped().await });
    if let Err(error) = served.await {
        tracing::warn!(%error, "the stream no longer serves /metrics");
    }
}
