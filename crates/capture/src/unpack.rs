//! The bytes of a file, decompressed by gzip or zstd where needed, up to a limit.

use std::error::Error as _;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::error::CaptureError;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The most bytes that are decompressed at once.
const PIECE: usize = 64 << 10;

/// The content of a file without its compression.
pub struct Unpacked {
    file: Box<dyn Read + Send>,
    is_packed: bool,
    left: u64,
    has_failed: bool,
    fate: Arc<Fate>,
}

/// The outcome of a file. It keeps the reason of a failure, because readers of formats drop the
/// reason.
#[derive(Debug, Default)]
pub struct Fate {
    limit: u64,
    failure: OnceLock<UnpackError>,
    cut_off: AtomicBool,
}

#[derive(Debug)]
enum UnpackError {
    TooLarge,
    /// The compressed data is invalid.
    Packed(String),
    Read(ErrorKind, String),
}

impl Fate {
    /// Tells whether the compressed data is incomplete.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::Relaxed)
    }

    /// Returns the error that ended the reading, with the number of packets before it.
    pub fn error(&self, packets: u64) -> Option<CaptureError> {
        Some(match self.failure.get()? {
            UnpackError::TooLarge => CaptureError::TooLarge {
                packets,
                limit: self.limit,
            },
            UnpackError::Packed(reason) => CaptureError::Damaged {
                packets,
                what: format!("the bytes after them can't be decompressed ({reason})"),
            },
            UnpackError::Read(kind, reason) => {
                CaptureError::Read(io::Error::new(*kind, reason.clone()))
            }
        })
    }
}

impl Unpacked {
    /// Looks at the beginning of a file; `None` if the file is empty. `limit` is the most bytes of
    /// decompressed content.
    pub fn new(file: impl Read + Send + 'static, limit: u64) -> io::Result<Option<Self>> {
        let mut file = BufReader::with_capacity(PIECE, file);
        let begin = file.fill_buf()?;
        if begin.is_empty() {
            return Ok(None);
        }
        let (is_gzip, is_zstd) = (begin.starts_with(&GZIP), begin.starts_with(&ZSTD));
        let fate = Arc::new(Fate {
            limit,
            ..Fate::default()
        });
        let file: Box<dyn Read + Send> = match (is_gzip, is_zstd) {
            (true, _) => Box::new(MultiGzDecoder::new(file)),
            (_, true) => Box::new(Zstd {
                file,
                decoder: FrameDecoder::new(),
                is_open: false,
            }),
            _ => Box::new(file),
        };
        Ok(Some(Self {
            file,
            is_packed: is_gzip || is_zstd,
            left: limit,
            has_failed: false,
            fate,
        }))
    }

    /// The outcome of the file, which is kept here because the file itself was passed on.
    pub fn fate(&self) -> Arc<Fate> {
        Arc::clone(&self.fate)
    }

    fn fail(&mut self, failure: UnpackError) -> io::Error {
        self.has_failed = true;
        // The first reason counts.
        let _ = self.fate.failure.set(failure);
        io::Error::other("the capture can't be read")
    }

    /// Reads some bytes.
    fn some(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.file.read(bytes) {
            Ok(size) => match self.left.checked_sub(size as u64) {
                Some(left) => {
                    self.left = left;
                    Ok(size)
                }
                None => Err(self.fail(UnpackError::TooLarge)),
            },
            Err(error) if error.kind() == ErrorKind::Interrupted => Err(error),
            Err(error) if self.is_packed && is_end(&error) => {
                self.fate.cut_off.store(true, Ordering::Relaxed);
                Ok(0)
            }
            Err(error) if self.is_packed => Err(self.fail(UnpackError::Packed(error.to_string()))),
            Err(error) => Err(self.fail(UnpackError::Read(error.kind(), error.to_string()))),
        }
    }
}

impl Read for Unpacked {
    /// Reads the requested number of bytes, up to a limit: readers of formats want a whole head in
    /// one call, but a compressed file comes in pieces of any size.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.has_failed {
            return Err(io::Error::other("the capture can't be read"));
        }
        let (mut filled, wanted) = (0, bytes.len().min(PIECE));
        while filled < wanted {
            match self.some(&mut bytes[filled..wanted]) {
                Ok(0) => break,
                Ok(size) => filled += size,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The next call fails.
                Err(_) if filled > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

/// Tells whether an error, or one of its causes, is the end of the file.
fn is_end(error: &io::Error) -> bool {
    if error.kind() == ErrorKind::UnexpectedEof {
        return true;
    }
    // The inner error has its own causes.
    let mut cause = error.get_ref().map(|inner| inner as &dyn std::error::Error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return is_end(io);
        }
        cause = error.source();
    }
    error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>())
        .is_some_and(is_end)
}

/// A file in zstd, which is a sequence of frames.
struct Zstd<R> {
    file: R,
    decoder: FrameDecoder,
    /// True within a frame.
    is_open: bool,
}

impl<R: BufRead> Zstd<R> {
    /// Begins the next frame. Returns false at the end of the file.
    fn open(&mut self) -> io::Result<bool> {
        while !self.file.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.file) {
                Ok(()) => {
                    self.is_open = true;
                    return Ok(true);
                }
                // Some tools keep an index in frames that no decoder reads.
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut self.file.by_ref().take(length), &mut io::sink())? < length {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        loop {
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(bytes);
            }
            if self.is_open && !self.decoder.is_finished() {
                let some = BlockDecodingStrategy::UptoBytes(bytes.len());
                self.decoder
                    .decode_blocks(&mut self.file, some)
                    .map_err(io::Error::other)?;
                continue;
            }
            if !self.open()? {
                return Ok(0);
            }
        }
    }
}
