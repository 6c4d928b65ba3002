//! The run: requests when they are due, on one thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use simulator::rng::Rng;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep, sleep_until};

use crate::client::{Address, Answered, Limits, Pool, send};
use crate::error::BenchError;
use crate::options::Options;
use crate::record::{Outcome, Record};
use crate::workload::{Conversation, Due, Form, Item, items};

/// Between two looks whether the server is ready.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// How long one such look may take.
const LOOK_FOR: Duration = Duration::from_secs(5);

/// Bytes of requests that are written before the clock starts: writing them beside a run would slow down whoever shares
/// the cores, and answers would wait to be looked at.
const WRITTEN_AHEAD_BYTES: usize = 1 << 30;

/// What a run showed.
#[derive(Clone, Debug)]
pub struct Outcomes {
    /// One for each request, in the order of the workload.
    pub records: Vec<Record>,
    /// From the first request to the end of the last.
    pub lasted: Duration,
}

/// Runs a workload to its end.
///
/// # Errors
/// If the options do not fit together, a file cannot be read, or the server does not become ready.
pub fn run(options: &Options) -> Result<Outcomes, BenchError> {
    let items = items(options)?;
    let pool = Pool::new(Address::parse(&options.url)?, options.http2);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, async {
        let listed = ready(options, &pool).await?;
        let form = Form {
            model: options.model.clone().or(listed).unwrap_or_default(),
            stream: !options.no_stream,
            ignore_eos: !options.stop_at_eos,
            token_ids: options.token_ids,
            text: options.text,
        };
        let run = Run {
            begin: Instant::now(),
            options: options.clone(),
            form,
            pool,
            records: RefCell::default(),
        };
        for index in 0..options.warm_up {
            if let Some(item) = items.get(index % items.len().max(1)) {
                let body = run.form.body(item, &mut Conversation::default());
                run.exchange(index, item, body, false).await;
            }
        }
        let mut chains = chains(items);
        run.write_ahead(&mut chains);
        let run = Rc::new(Run {
            begin: Instant::now(),
            ..run
        });
        Rc::clone(&run).send_all(chains).await;
        let lasted = run.begin.elapsed();
        let mut records = run.records.take();
        records.sort_by_key(|record| record.index);
        Ok(Outcomes { records, lasted })
    })
}

/// Waits until the server lists its models; gives the first.
async fn ready(options: &Options, pool: &Pool) -> Result<Option<String>, BenchError> {
    let patience = Duration::from_secs(options.ready_timeout);
    let until = Instant::now() + patience;
    loop {
        let limits = Limits {
            timeout: LOOK_FOR,
            leave_after: None,
            keep_text: true,
        };
        let key = options.api_key.as_deref();
        let answered = send(pool, "/v1/models", key, Bytes::new(), limits).await;
        if answered.outcome == Outcome::Ok {
            return Ok(first_model(&answered.text));
        }
        if Instant::now() >= until {
            return Err(BenchError::NotReady {
                url: options.url.clone(),
                seconds: options.ready_timeout,
                reason: answered.error.unwrap_or_default(),
            });
        }
        sleep(LOOK_AGAIN_AFTER).await;
    }
}

fn first_model(page: &str) -> Option<String> {
    let page: serde_json::Value = serde_json::from_str(page).ok()?;
    page["data"][0]["id"].as_str().map(str::to_owned)
}

struct Run {
    begin: Instant,
    options: Options,
    form: Form,
    pool: Pool,
    records: RefCell<Vec<Record>>,
}

/// Requests that follow each other: one, or a chat.
struct Chain {
    requests: Vec<(usize, Item)>,
    /// The body of the only one, if it was written ahead.
    written: Option<Bytes>,
}

impl Chain {
    /// When the first of them is due.
    fn due(&self) -> Option<Duration> {
        match self.requests.first()?.1.due {
            Due::At(at) => Some(at),
            Due::AfterPrevious(_) => None,
        }
    }
}

impl Run {
    /// Writes the requests that depend on no answer, as far as memory is set aside for them.
    fn write_ahead(&self, chains: &mut [Chain]) {
        let mut bytes = 0;
        for chain in chains {
            if let [(_, only)] = &chain.requests[..]
                && bytes < WRITTEN_AHEAD_BYTES
            {
                let body = self.form.body(only, &mut Conversation::default());
                bytes += body.len();
                chain.written = Some(body);
            }
        }
    }

    async fn send_all(self: Rc<Self>, chains: Vec<Chain>) {
        let slots = self
            .options
            .at_once()
            .map(|most| std::sync::Arc::new(Semaphore::new(most)));
        let mut running = JoinSet::new();
        for chain in chains {
            let Some(at) = chain.due() else {
                continue;
            };
            sleep_until(self.begin + at).await;
            let slot = match &slots {
                Some(slots) => std::sync::Arc::clone(slots).acquire_owned().await.ok(),
                None => None,
            };
            running.spawn_local(Rc::clone(&self).follow(chain, slot));
            while running.try_join_next().is_some() {}
        }
        while running.join_next().await.is_some() {}
    }

    /// Sends the requests of a chain one after the other; a chat ends with its first failure.
    async fn follow(self: Rc<Self>, chain: Chain, slot: Option<OwnedSemaphorePermit>) {
        let mut conversation = Conversation::default();
        let closed_loop = slot.is_some() && self.options.rate.is_none();
        let mut written = chain.written;
        let turns = chain.requests.len();
        for (turn, (index, item)) in chain.requests.into_iter().enumerate() {
            let since = Instant::now();
            let body = written
                .take()
                .unwrap_or_else(|| self.form.body(&item, &mut conversation));
            let due = match item.due {
                // Whoever waits for a free place is not late.
                Due::At(_) if closed_loop => Instant::now(),
                Due::At(at) => self.begin + at,
                Due::AfterPrevious(think) => since + think,
            };
            sleep_until(due).await;
            let sent = Instant::now();
            let goes_on = turn + 1 < turns;
            let answered = self.exchange(index, &item, body, goes_on).await;
            let outcome = answered.outcome;
            let text = self.record(index, item.session, (due, sent), answered);
            if outcome != Outcome::Ok {
                return;
            }
            conversation.answered(text);
        }
    }

    async fn exchange(&self, index: usize, item: &Item, body: Bytes, keep_text: bool) -> Answered {
        let limits = Limits {
            timeout: Options::seconds(self.options.timeout),
            leave_after: self.leaves_after(index, item),
            keep_text,
        };
        let key = self.options.api_key.as_deref();
        send(&self.pool, self.form.path(), key, body, limits).await
    }

    /// Whether the client leaves this one, and after how many chunks.
    fn leaves_after(&self, index: usize, item: &Item) -> Option<u32> {
        let mut rng = Rng::new(self.options.seed ^ (index as u64) << 20);
        let leaves = self.form.stream && rng.unit() <= self.options.cancel_share;
        leaves.then(|| u32::try_from(rng.between(1, item.output_tokens)).unwrap_or(1))
    }

    /// Writes down what came; gives the text.
    fn record(
        &self,
        index: usize,
        session: u64,
        (due, sent): (Instant, Instant),
        came: Answered,
    ) -> String {
        let usage = came.usage.unwrap_or_default();
        let chunks = came.gaps.len() as u64 + u64::from(came.first.is_some());
        self.records.borrow_mut().push(Record {
            index,
            session,
            due: due - self.begin,
            sent: sent - self.begin,
            ttft: came.first.map(|first| first - sent),
            end_to_end: came.ended - sent,
            gaps: came.gaps,
            outcome: came.outcome,
            status: came.status,
            prompt_tokens: usage.prompt_tokens,
            output_tokens: came.usage.map_or(chunks, |usage| usage.completion_tokens),
            cached_tokens: usage.cached_tokens(),
            error: came.error,
        });
        came.text
    }
}

/// Groups requests into what must follow each other, in the order in which the first of each is due.
fn chains(items: Vec<Item>) -> Vec<Chain> {
    let mut chains: Vec<Chain> = Vec::new();
    let mut by_session: HashMap<u64, usize> = HashMap::new();
    for (index, item) in items.into_iter().enumerate() {
        match (item.due, by_session.get(&item.session)) {
            (Due::AfterPrevious(_), Some(&chain)) => chains[chain].requests.push((index, item)),
            _ => {
                by_session.insert(item.session, chains.len());
                chains.push(Chain {
                    requests: vec![(index, item)],
                    written: None,
                });
            }
        }
    }
    chains.sort_by_key(|chain| chain.due().unwrap_or_default());
    chains
}
