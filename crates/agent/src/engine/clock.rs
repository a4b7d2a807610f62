//! The threads that close windows by the clock.

use std::io;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use crate::engine::window::schedule::Timetable;
use crate::engine::window::together;

/// The threads that close windows by the clock. Requests use other threads, so that they can't
/// delay these.
#[derive(Debug)]
pub struct Clock {
    threads: Option<Runtime>,
    /// The probes whose windows the clock closes.
    pub timetable: Arc<Timetable>,
}

impl Clock {
    pub fn start() -> io::Result<Self> {
        let threads = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("schedule")
            .enable_time()
            .build()?;
        let timetable = Arc::default();
        together::start(&timetable, threads.handle())?;
        Ok(Self {
            threads: Some(threads),
            timetable,
        })
    }

    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.threads {
            runtime.spawn(task);
        }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.timetable.end();
        // The engine may be dropped on a thread that must not wait.
        self.threads
            .take()
            .into_iter()
            .for_each(Runtime::shutdown_background);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_clock_has_threads_when_requests_have_none() {
        let requests = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let clock = Clock::start().unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (sender, closed) = std::sync::mpsc::channel();
        requests.block_on(async {
            // The runtime has ended, so that no thread is left for the task of a request.
            tokio::task::spawn_blocking(move || released.recv());
            tokio::spawn(async { std::thread::park_timeout(Duration::from_secs(600)) });
            clock.spawn(async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let _ = sender.send(tokio::task::spawn_blocking(|| 7).await.ok());
            });
        });
        assert_eq!(closed.recv_timeout(Duration::from_secs(120)), Ok(Some(7)));
        drop(release);
        requests.shutdown_background();
    }
}
