//! The task that keeps the connection: it connects, listens for invalidations, asks now and then whether
//! everything is well, and says so to the breaker.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use redis::{Msg, RedisResult};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::address::Address;
use super::link::{self, CONNECT_BUDGET, Link};
use super::{EPOCHS_CHANNEL, EPOCHS_KEY, GET_BUDGET, Shared, raise_command};

/// How often it asks. Invalidations that were missed are heard of within this time.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// How often it asks while nobody else may.
const CHECK_EVERY_WHILE_OPEN: Duration = Duration::from_millis(100);

/// A connection that says nothing for so long is given up: the server may have moved.
const GIVE_UP_AFTER: Duration = Duration::from_secs(2);

/// The first and the longest pause between two attempts to connect.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

pub(super) async fn keep(shared: Arc<Shared>) {
    let mut pause = RETRY.0;
    let mut was_up = true;
    loop {
        let connected = timeout(CONNECT_BUDGET, connect(&shared.address)).await;
        match connected {
            Ok(Ok((link, listener))) => {
                tracing::info!(target: "forespeak::cache", "connected to redis");
                was_up = true;
                pause = RETRY.0;
                let why = attend(&shared, link, listener).await;
                shared.link.store(None);
                tracing::warn!(target: "forespeak::cache", why, "lost redis; answering without it");
            }
            failed if was_up => {
                was_up = false;
                let why = match failed {
                    Ok(Err(error)) => error.to_string(),
                    _ => "no answer".to_owned(),
                };
                tracing::warn!(target: "forespeak::cache", why, "redis is away; answering without it");
            }
            _ => {}
        }
        sleep(pause).await;
        pause = (pause * 2).min(RETRY.1);
    }
}

/// A connection for questions and one that listens.
async fn connect(address: &Address) -> RedisResult<(Link, impl Stream<Item = Msg> + use<>)> {
    let (link, client) = link::open(address).await?;
    let mut listener = client.get_async_pubsub().await?;
    listener.subscribe(EPOCHS_CHANNEL).await?;
    Ok((link, listener.into_on_message()))
}

/// Uses a connection until it is no good. Why it is not.
async fn attend(shared: &Shared, link: Link, listener: impl Stream<Item = Msg>) -> &'static str {
    let mut listener = pin!(listener);
    // Nothing is read before every invalidation is known: an entry may be older than one of them.
    if timeout(CONNECT_BUDGET, exchange_epochs(shared, &link)).await != Ok(true) {
        return "the epochs could not be read";
    }
    shared.breaker.close();
    shared.link.store(Some(Arc::new(link.clone())));
    let mut last_answer = Instant::now();
    let mut last_check = last_answer;
    loop {
        let every = if shared.breaker.is_open() {
            CHECK_EVERY_WHILE_OPEN
        } else {
            CHECK_EVERY
        };
        match timeout_at(last_check + every, listener.next()).await {
            Ok(Some(message)) => {
                hear(shared, &message);
                continue;
            }
            Ok(None) => return "the connection was closed",
            Err(_) => last_check = Instant::now(),
        }
        match timeout(GET_BUDGET, exchange_epochs(shared, &link)).await {
            Ok(true) => {
                last_answer = Instant::now();
                shared.breaker.close();
            }
            Ok(false) => return "it does not answer as it should",
            Err(_) => {
                shared.breaker.failed();
                if last_answer.elapsed() > GIVE_UP_AFTER {
                    return "it has not answered for too long";
                }
            }
        }
    }
}

fn hear(shared: &Shared, message: &Msg) {
    let text = std::str::from_utf8(message.get_payload_bytes()).unwrap_or_default();
    if let Some((slot, epoch)) = text.split_once(':')
        && let (Ok(slot), Ok(epoch)) = (slot.parse(), epoch.parse())
    {
        shared.epochs.raise(slot, epoch);
    }
}

/// Takes over what others invalidated, and brings back what Redis has lost. Whether it answered.
async fn exchange_epochs(shared: &Shared, link: &Link) -> bool {
    let mut command = redis::cmd("HGETALL");
    command.arg(EPOCHS_KEY);
    let Ok(theirs) = link.query::<HashMap<String, String>>(&command).await else {
        return false;
    };
    let theirs: HashMap<u16, u64> = theirs
        .iter()
        .filter_map(|(slot, epoch)| Some((slot.parse().ok()?, epoch.parse().ok()?)))
        .collect();
    for (slot, epoch) in &theirs {
        shared.epochs.raise(*slot, *epoch);
    }
    for (slot, epoch) in shared.epochs.known() {
        if theirs.get(&slot).is_none_or(|theirs| *theirs < epoch)
            && link
                .query::<i64>(&raise_command(slot, epoch))
                .await
                .is_err()
        {
            return false;
        }
    }
    true
}
