//! The parts of a request with captures.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use hyper::body::Bytes;
use multer::{Field, Multipart};
use tokio::task::spawn_blocking;
use twinprobe_access::{RecordNotes, Refusal};
use twinprobe_api::{ConfigDocument, RuleDocument, parse_any_json, parse_any_yaml};
use twinprobe_capture::{LocalAddress, NoAddress};

use crate::api::error::ProblemAnswer;
use crate::api::extract::{BodyShare, MAX_BODY, Syntax, parse_config, too_large, unreadable};
use crate::api::rules::rules;
use crate::api::state::Api;
use crate::engine::error::EngineError;
use crate::engine::replay::replay::UploadedCaptures;

pub const CONFIG: &str = "config";
pub const RULE: &str = "rule";
const CAPTURE: &str = "capture";
const EGRESS_CAPTURE: &str = "egress-capture";
const LOCAL: &str = "local";
/// The parts that all such requests may have.
const PARTS: [&str; 4] = [CONFIG, CAPTURE, EGRESS_CAPTURE, LOCAL];

/// The most addresses of a host, and the most bytes of an address.
const ADDRESSES: usize = 256;
const ADDRESS: usize = 64;

/// The bytes that are written to disk at once.
const PIECE: usize = 1 << 20;

/// The parts of a request, among them at least one capture.
pub struct ReplayParts {
    pub config: Option<(ConfigDocument, BodyShare)>,
    pub rule: Option<RuleDocument>,
    pub captures: UploadedCaptures,
}

/// Reads the parts of a request, which must have the part `needed` and a capture. A rule is allowed
/// only in a request that needs a rule. Captures are written to the disk.
pub async fn read(
    api: &Api,
    notes: &RecordNotes,
    headers: &HeaderMap,
    request: Body,
    needed: &str,
) -> Result<ReplayParts, ProblemAnswer> {
    let mut parts = Multipart::new(request.into_data_stream(), boundary(headers)?);
    let captures = UploadedCaptures {
        capture: None,
        egress: None,
        local: Vec::new(),
    };
    let mut found = ReplayParts {
        config: None,
        rule: None,
        captures,
    };
    let captures = &mut found.captures;
    let mut room = api.engine.deployer.ledger.limits.max_capture_bytes;
    while let Some(part) = parts.next_field().await.map_err(|error| broken(&error))? {
        let name = part.name().unwrap_or_default().to_owned();
        let is_second = match &*name {
            CONFIG => found
                .config
                .replace(read_config(notes, part).await?)
                .is_some(),
            RULE if needed == RULE => found.rule.replace(read_rule(part).await?).is_some(),
            CAPTURE => captures
                .capture
                .replace(spool(api, part, &mut room).await?)
                .is_some(),
            EGRESS_CAPTURE => captures
                .egress
                .replace(spool(api, part, &mut room).await?)
                .is_some(),
            LOCAL => {
                captures
                    .local
                    .push(address(part, captures.local.len()).await?);
                false
            }
            _ => return Err(unknown(&name, needed)),
        };
        if is_second {
            let detail = format!("there are two parts {name:?}");
            return Err(ProblemAnswer::new(StatusCode::BAD_REQUEST, detail));
        }
    }
    let has_needed = match needed {
        RULE => found.rule.is_some(),
        _ => found.config.is_some(),
    };
    match found.captures.capture.is_some() || found.captures.egress.is_some() {
        _ if !has_needed => Err(missing(needed)),
        true => Ok(found),
        false => Err(missing(CAPTURE)),
    }
}

/// Makes the problem of a part that a request with the part `needed` may not have.
fn unknown(part: &str, needed: &str) -> ProblemAnswer {
    let with_rule = if needed == RULE { ", rule" } else { "" };
    let known = PARTS.join(", ");
    let detail = format!("the part {part:?} is not known; {known}{with_rule} are");
    ProblemAnswer::new(StatusCode::BAD_REQUEST, detail)
}

/// Returns the boundary between the parts of a body.
pub fn boundary(headers: &HeaderMap) -> Result<String, Refusal> {
    let mut given = headers.get_all(header::CONTENT_TYPE).iter();
    let (value, others) = (
        given.next().and_then(|value| value.to_str().ok()),
        given.count(),
    );
    let boundary = value
        .filter(|_| others == 0)
        .and_then(|value| multer::parse_boundary(value).ok());
    boundary.ok_or(Refusal::NotMultipart)
}

pub fn probe_name(config: &ConfigDocument) -> String {
    config.name.clone().unwrap_or_else(|| "unnamed".to_owned())
}

/// Returns the problem of a request without this part.
pub fn missing(part: &str) -> ProblemAnswer {
    ProblemAnswer::new(
        StatusCode::BAD_REQUEST,
        format!("the part {part} is missing"),
    )
}

/// Tells whether a part is in YAML. Clients send files with different media types.
fn is_yaml(part: &Field<'_>) -> bool {
    part.content_type()
        .is_some_and(|given| given.essence_str().ends_with("yaml"))
}

async fn read_rule(mut part: Field<'_>) -> Result<RuleDocument, ProblemAnswer> {
    let is_yaml = is_yaml(&part);
    let mut bytes = Vec::new();
    while let Some(piece) = chunk(&mut part).await? {
        bytes.extend_from_slice(&piece);
        rules::check_size(bytes.len())?;
    }
    Ok(if is_yaml {
        parse_any_yaml(&bytes)
    } else {
        parse_any_json(&bytes)
    }?)
}

async fn read_config(
    notes: &RecordNotes,
    mut part: Field<'_>,
) -> Result<(ConfigDocument, BodyShare), ProblemAnswer> {
    let is_yaml = is_yaml(&part);
    let (mut bytes, mut held) = (Vec::new(), BodyShare::default());
    while let Some(piece) = chunk(&mut part).await? {
        if bytes.len() + piece.len() > MAX_BODY {
            return Err(too_large());
        }
        held.add(piece.len())?;
        bytes.extend_from_slice(&piece);
    }
    let config = parse_config(if is_yaml { Syntax::Yaml } else { Syntax::Json }, bytes).await?;
    notes.set(&probe_name(&config), &config);
    Ok((config, held))
}

/// Reads an address of the host on which the packets were captured. The request already has
/// `others` addresses.
async fn address(mut part: Field<'_>, others: usize) -> Result<LocalAddress, ProblemAnswer> {
    let refuse = |message: String| {
        ProblemAnswer::new(
            StatusCode::BAD_REQUEST,
            format!("the part {LOCAL}: {message}"),
        )
    };
    if others == ADDRESSES {
        return Err(refuse(format!("more than {ADDRESSES} addresses are given")));
    }
    let mut text = Vec::new();
    while let Some(piece) = chunk(&mut part).await? {
        text.extend_from_slice(&piece);
        if text.len() > ADDRESS {
            return Err(refuse(format!("an address has more than {ADDRESS} bytes")));
        }
    }
    String::from_utf8_lossy(&text)
        .trim()
        .parse()
        .map_err(|error: NoAddress| refuse(error.to_string()))
}

/// Writes a part to disk, at most `room` bytes.
async fn spool(
    api: &Api,
    mut part: Field<'_>,
    room: &mut u64,
) -> Result<std::fs::File, ProblemAnswer> {
    let limit = api.engine.deployer.ledger.limits.max_capture_bytes;
    let mut spool = api
        .engine
        .deployer
        .spools()
        .create()
        .map_err(EngineError::Spool)?;
    let mut bytes = Vec::with_capacity(PIECE);
    loop {
        let piece = chunk(&mut part).await?;
        let is_last = piece.is_none();
        if let Some(piece) = piece {
            *room = room.checked_sub(piece.len() as u64).ok_or_else(|| {
                let detail = format!(
                    "the captures have more than {limit} bytes, which --max-capture-bytes allows; cut them (editcap -c), or \
                     leave out what is not needed (tcpdump -s 128)"
                );
                ProblemAnswer::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
            })?;
            bytes.extend_from_slice(&piece);
        }
        if bytes.len() >= PIECE || is_last {
            (spool, bytes) = spawn_blocking(move || {
                spool.write(&bytes)?;
                bytes.clear();
                Ok::<_, std::io::Error>((spool, bytes))
            })
            .await
            .map_err(EngineError::from)?
            .map_err(EngineError::Spool)?;
        }
        if is_last {
            return Ok(spool.finish().map_err(EngineError::Spool)?);
        }
    }
}

async fn chunk(part: &mut Field<'_>) -> Result<Option<Bytes>, ProblemAnswer> {
    part.chunk().await.map_err(|error| broken(&error))
}

/// Makes the problem of a body that breaks off, takes too long or has no parts.
fn broken(error: &multer::Error) -> ProblemAnswer {
    match error {
        multer::Error::StreamReadFailed(cause) => match cause.source() {
            Some(cause) => unreadable(cause),
            None => unreadable(&**cause),
        },
        error => ProblemAnswer::new(
            StatusCode::BAD_REQUEST,
            format!("the body is not multipart/form-data: {error}"),
        ),
    }
}
