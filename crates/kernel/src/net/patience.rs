//! Queries about paths, with a limit for the wait: a path may be on a file system whose server
//! never answers.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{io, thread};

use parking_lot::Mutex;

const PATIENCE: Duration = Duration::from_secs(2);
/// The largest number of queries without an answer. Each of them occupies a thread.
const UNANSWERED: usize = 64;

/// A query that has no answer so far.
struct OpenQuestion {
    number: u64,
    path: PathBuf,
    since: Instant,
}

static ASKED: Mutex<Vec<OpenQuestion>> = Mutex::new(Vec::new());

/// Makes a query on a new thread, and waits at most [`PATIENCE`] for the answer. A path that does
/// not answer in this time gets no second query before it has answered, so that at most one thread
/// waits for each path.
pub fn ask<T: Send + 'static>(
    path: &Path,
    question: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let number = note(path)?;
    let asked = path.to_owned();
    let (sender, answer) = mpsc::channel();
    let spawned = thread::Builder::new()
        .name("netns-path".to_owned())
        .spawn(move || {
            let _noted = QuestionGuard(number);
            let _ = sender.send(question(&asked));
        });
    if let Err(error) = spawned {
        drop(QuestionGuard(number));
        return Err(error);
    }
    match answer.recv_timeout(PATIENCE) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => Err(late(path)),
        Err(RecvTimeoutError::Disconnected) => {
            Err(io::Error::other("the request ended without an answer"))
        }
    }
}

/// A guard that removes a query from [`ASKED`] once it is answered or could not start.
struct QuestionGuard(u64);

impl Drop for QuestionGuard {
    fn drop(&mut self) {
        ASKED.lock().retain(|asked| asked.number != self.0);
    }
}

fn note(path: &Path) -> io::Result<u64> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut asked = ASKED.lock();
    if asked
        .iter()
        .any(|asked| asked.path == path && asked.since.elapsed() >= PATIENCE)
    {
        return Err(late(path));
    }
    if asked.len() >= UNANSWERED {
        let message =
            format!("{UNANSWERED} paths have not answered yet, so the daemon asks no other path");
        return Err(io::Error::new(io::ErrorKind::TimedOut, message));
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    asked.push(OpenQuestion {
        number,
        path: path.to_owned(),
        since: Instant::now(),
    });
    Ok(number)
}

fn late(path: &Path) -> io::Error {
    let message = format!(
        "{} has not answered for {} s",
        path.display(),
        PATIENCE.as_secs()
    );
    io::Error::new(io::ErrorKind::TimedOut, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_does_not_answer_is_asked_once() {
        let (release, released) = mpsc::channel::<()>();
        let path = Path::new("/tpu-silent");
        let before = Instant::now();
        let silent = ask(path, move |_| released.recv().map_err(io::Error::other));
        assert_eq!(silent.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(before.elapsed() >= PATIENCE);
        let (asks, asked) = mpsc::channel();
        let again = ask(path, move |_| asks.send(()).map_err(io::Error::other));
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::TimedOut);
        asked
            .recv()
            .expect_err("a second question is never asked, so no task waits for it");
        assert!(ask(Path::new("/tpu-other"), |_| Ok(())).is_ok());
        release.send(()).unwrap();
        while ask(path, |_| Ok(())).is_err() {
            thread::yield_now();
        }
    }
}
