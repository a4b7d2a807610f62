//! The threads of windows that are closed by the clock.

use std::io;

use tokio::runtime::{Builder, Runtime};

use crate::engine::window::together::Together;

/// The threads that close windows by the clock. Requests, whatever they do and however many they are, have others.
#[derive(Debug)]
pub struct Clock {
    threads: Option<Runtime>,
    /// Closes the windows that are due at the same time.
    pub together: Together,
}

impl Clock {
    pub fn start() -> io::Result<Self> {
        let threads =
            Builder::new_multi_thread().worker_threads(1).thread_name("schedule").enable_time().build();
        Ok(Self { threads: Some(threads?), together: Together::start()? })
    }

    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.threads {
            runtime.spawn(task);
        }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        // The engine may go on a thread that must not wait.
        self.threads.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_clock_has_threads_when_requests_have_none() {
        let requests = Builder::new_multi_thread().worker_threads(1).max_blocking_threads(1).build().unwrap();
        let clock = Clock::start().unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (sender, closed) = std::sync::mpsc::channel();
        requests.block_on(async {
            // No thread is left for a request's work, and none for its task.
            tokio::task::spawn_blocking(move || released.recv());
            tokio::spawn(async { std::thread::park_timeout(Duration::from_secs(20)) });
            clock.spawn(async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let _ = sender.send(tokio::task::spawn_blocking(|| 7).await.ok());
            });
        });
        assert_eq!(closed.recv_timeout(Duration::from_secs(10)), Ok(Some(7)));
        drop(release);
        requests.shutdown_background();
    }
}
