//! Faults at random, for a while: however a request ends, it ends once, and nothing is left of it.
//!
//! `FORESPEAK_CHAOS_SECONDS` says how long (`make test-chaos`: five minutes), `FORESPEAK_CHAOS_SEED` repeats the faults of
//! a run that printed its seed.
//!
//! Every answer is checked against what the prompt must give, so a stream that was continued on another worker
//! may neither lose a word nor say one twice.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

mod clients;
mod front;
mod mischief;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bench::Outcome;
use clients::{CLIENTS, Told, ask_until};
use front::{Front, eventually};
use mischief::Mischief;

/// How long when nothing else is said: enough for every kind of fault to come once or twice.
const SECONDS: u64 = 6;

static PANICS: AtomicUsize = AtomicUsize::new(0);

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn whatever_breaks_every_request_ends_once_and_nothing_is_left_of_it() {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = setting("FORESPEAK_CHAOS_SEED").unwrap_or(clock.as_nanos() as u64);
    let lasting = Duration::from_secs(setting("FORESPEAK_CHAOS_SECONDS").unwrap_or(SECONDS));
    println!("FORESPEAK_CHAOS_SEED={seed}");
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        report(panic);
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(chaos(seed, lasting));
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "a task panicked");
}

async fn chaos(seed: u64, lasting: Duration) {
    let mut mischief = Mischief::start(seed).await;
    let front = Front::start(mischief.mocks()).await;
    let address = front.address;
    let clients = std::thread::spawn(move || ask_until(address, lasting, seed));
    mischief.make_for(lasting).await;
    mischief.repair().await;
    let told = tokio::task::spawn_blocking(move || clients.join().unwrap())
        .await
        .unwrap();

    let asked = told.len();
    let count = |outcome| told.iter().filter(|told| told.outcome == outcome).count();
    println!(
        "{asked} requests: {} answered, {} left, {} faults made",
        count(Outcome::Ok),
        count(Outcome::Cancelled),
        mischief.made
    );
    for told in &told {
        check(told);
    }
    assert!(
        count(Outcome::Ok) * 2 > asked,
        "most requests should be answered: {:?}",
        told.iter().find(|told| told.outcome != Outcome::Ok)
    );
    assert!(asked >= CLIENTS, "{asked} requests");

    eventually("the gateway's books are empty", || front.is_drained()).await;
    eventually("no request is open at a worker", || {
        mischief.mocks().all(|mock| {
            let books = mock.books();
            books.running + books.waiting == 0 && books.kv_usage == 0.0
        })
    })
    .await;
    front.check_drained(asked).await;
}

/// A request ends with its answer, with a status, or with an error event; never by a broken connection or not at all.
fn check(told: &Told) {
    match told.outcome {
        Outcome::Ok => assert_eq!(told.text, told.expected, "the wrong answer: {told:?}"),
        Outcome::Cancelled => assert!(
            told.expected.starts_with(&told.text),
            "a wrong beginning: {told:?}"
        ),
        Outcome::TooManyRequests
        | Outcome::Unavailable
        | Outcome::ServerError
        | Outcome::ErrorEvent => {}
        Outcome::ClientError
        | Outcome::Connect
        | Outcome::Reset
        | Outcome::Cut
        | Outcome::Incomplete
        | Outcome::Timeout => panic!("no proper end: {told:?}"),
    }
}
