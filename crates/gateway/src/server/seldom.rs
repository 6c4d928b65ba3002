//! A future that is looked at only when it asks for it.
//!
//! A connection's task is woken for every piece of every answer, and each time a `select!` polls all that it waits for: the
//! stop switch, too, whose lock all connections share. What is hardly ever ready is better left alone until it wakes the task
//! itself.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Stays within the task that polled it first: another would not be woken.
pub(super) struct Seldom<F> {
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
    waker: Waker,
}

struct Bell {
    has_rung: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl<F: Future> Seldom<F> {
    pub(super) fn new(future: F) -> Self {
        let bell = Arc::new(Bell {
            // It is looked at once to hear what it waits for.
            has_rung: AtomicBool::new(true),
            task: AtomicWaker::new(),
        });
        Self {
            future: Box::pin(future),
            waker: Waker::from(Arc::clone(&bell)),
            bell,
        }
    }
}

impl<F: Future> Future for Seldom<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if !self.bell.has_rung.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        self.bell.task.register(cx.waker());
        self.bell.has_rung.store(false, Ordering::Release);
        let Self { future, waker, .. } = &mut *self;
        future.as_mut().poll(&mut Context::from_waker(waker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[tokio::test]
    async fn it_is_polled_when_it_wakes_and_not_when_others_do() {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let (send, mut receive) = tokio::sync::oneshot::channel();
        let mut seldom = Seldom::new(std::future::poll_fn(move |cx| {
            counted.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut receive).poll(cx)
        }));
        for _ in 0..5 {
            assert!(futures_util::poll!(&mut seldom).is_pending());
        }
        assert_eq!(looks.load(Ordering::Relaxed), 1);
        send.send(7).unwrap();
        assert_eq!(seldom.await, Ok(7));
        assert_eq!(looks.load(Ordering::Relaxed), 2);
    }
}
