//! Many log lines, few system calls.
//!
//! A server writes a line for every request. Writing each at once costs a system call on the way of the request and, where somebody
//! reads slowly, its time; so lines are collected and written together, a moment later, by a thread of their own.
//! Whatever is worth a warning is written at once, with all that came before it. Nothing is dropped: whoever finds the
//! collected lines grown beyond bounds writes them itself.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// How long a line may wait: too short for anybody who reads along to notice.
const WAIT: Duration = Duration::from_millis(50);

/// The most bytes that wait.
const MAX_BYTES: usize = 256 << 10;

/// Where lines are collected.
#[derive(Clone)]
pub(super) struct Batched(Arc<Shared>);

struct Shared {
    lines: Mutex<Vec<u8>>,
    has_lines: Condvar,
    /// Held while lines are taken and written, so that they stay in order.
    sink: Mutex<Sink>,
}

struct Sink {
    out: Box<dyn Write + Send>,
    /// Room for the next lines, while these are written.
    spare: Vec<u8>,
}

impl Batched {
    /// Writes to `sink`, from now to the end of the process.
    pub(super) fn to(sink: impl Write + Send + 'static) -> Self {
        let shared = Arc::new(Shared {
            lines: Mutex::default(),
            has_lines: Condvar::new(),
            sink: Mutex::new(Sink {
                out: Box::new(sink),
                spare: Vec::new(),
            }),
        });
        let writer = Arc::clone(&shared);
        let started = thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                loop {
                    writer.wait();
                    thread::sleep(WAIT);
                    writer.write_out();
                }
            });
        if started.is_err() {
            tracing::warn!("no thread for the log: lines are written when there are many of them");
        }
        Self(shared)
    }

    /// Writes what waits.
    pub(super) fn flush(&self) {
        self.0.write_out();
    }
}

impl Shared {
    fn wait(&self) {
        let lines = self.lines();
        drop(self.has_lines.wait_while(lines, |lines| lines.is_empty()));
    }

    fn write_out(&self) {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        let Sink { out, spare } = &mut *sink;
        std::mem::swap(spare, &mut self.lines());
        // There is nowhere to tell of a log that cannot be written.
        let _lost = out.write_all(spare).and_then(|()| out.flush());
        spare.clear();
    }

    fn lines(&self) -> MutexGuard<'_, Vec<u8>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes one line.
pub(super) struct Line<'a> {
    shared: &'a Shared,
    is_urgent: bool,
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (was_empty, length) = {
            let mut lines = self.shared.lines();
            let was_empty = lines.is_empty();
            lines.extend_from_slice(bytes);
            (was_empty, lines.len())
        };
        if self.is_urgent || length > MAX_BYTES {
            self.shared.write_out();
        } else if was_empty {
            self.shared.has_lines.notify_one();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Batched {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line {
            shared: &self.0,
            is_urgent: true,
        }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> Line<'a> {
        Line {
            shared: &self.0,
            is_urgent: *about.level() <= Level::WARN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn line(log: &Batched, text: &str, is_urgent: bool) {
        let mut line = Line {
            shared: &log.0,
            is_urgent,
        };
        line.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn an_urgent_line_is_written_at_once_behind_those_that_waited() {
        let page = Page::default();
        let log = Batched::to(page.clone());
        line(&log, "one\n", false);
        line(&log, "two\n", false);
        line(&log, "fire\n", true);
        assert_eq!(page.0.lock().unwrap().concat(), b"one\ntwo\nfire\n");
    }

    #[test]
    fn lines_that_wait_are_written_soon_and_together() {
        let page = Page::default();
        let log = Batched::to(page.clone());
        let since = Instant::now();
        for number in 0..100 {
            line(&log, &format!("{number}\n"), false);
        }
        while page.0.lock().unwrap().concat().len() < 290 {
            assert!(since.elapsed() < Duration::from_secs(10));
            thread::yield_now();
        }
        assert!(page.0.lock().unwrap().len() < 100);
    }

    #[test]
    fn what_waits_is_bounded() {
        let log = Batched::to(io::sink());
        let long = "x".repeat(MAX_BYTES / 2);
        for _ in 0..9 {
            line(&log, &long, false);
            assert!(log.0.lines().len() <= MAX_BYTES);
        }
    }
}
