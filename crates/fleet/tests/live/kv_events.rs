//! Listening to KV events over real sockets: nothing is missed without a word.

use crate::support::{
    PATIENCE, Publisher, batch, eventually, free_port, old_batch, quick_config, spec,
};
use forespeak_fleet::kv_events::Lost;
use forespeak_fleet::{EventsSpec, Fleet, KvChange, KvUpdate, WorkerId};
use protocol::kv_events::KvEvent;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

struct Listening {
    fleet: Fleet,
    updates: mpsc::Receiver<KvUpdate>,
}

impl Listening {
    async fn to(events_port: u16, replay_port: Option<u16>, ranks: u32) -> Self {
        let mut worker = spec(free_port().await);
        worker.events = Some(EventsSpec {
            endpoint: format!("tcp://{{host}}:{events_port}"),
            replay: replay_port.map(|port| format!("tcp://127.0.0.1:{port}")),
            topic: "kv".to_owned(),
            ranks,
        });
        let (fleet, updates) = Fleet::start(quick_config(vec![worker])).unwrap();
        Self { fleet, updates }
    }

    async fn next(&mut self) -> KvUpdate {
        tokio::time::timeout(PATIENCE, self.updates.recv())
            .await
            .expect("an update should come")
            .expect("the fleet should run")
    }

    /// The blocks removed by the next batches; fails on anything else.
    async fn blocks(&mut self, batches: usize) -> Vec<u64> {
        let mut blocks = Vec::new();
        for _ in 0..batches {
            match self.next().await.change {
                KvChange::Batch(batch) => match &batch.events[..] {
                    [KvEvent::Removed { block_hashes, .. }] => blocks.extend(block_hashes),
                    other => panic!("{other:?}"),
                },
                other => panic!("expected a batch after {blocks:?}, got {other:?}"),
            }
        }
        blocks
    }

    async fn lost(&mut self) -> Lost {
        match self.next().await.change {
            KvChange::Forget(lost) => lost,
            other => panic!("expected a loss, got {other:?}"),
        }
    }

    fn counts(&self) -> forespeak_fleet::kv_events::EventCounts {
        let snapshot = self.fleet.snapshot();
        snapshot.get(WorkerId(0)).unwrap().events.read()
    }
}

#[tokio::test]
async fn events_of_both_encodings_arrive_in_order() {
    let mut publisher = Publisher::start().await;
    let mut listening = Listening::to(publisher.events_port, None, 1).await;
    publisher.subscribed().await;
    publisher.publish(batch(10)).await;
    publisher.publish(old_batch(11)).await;
    publisher.publish(batch(12)).await;
    assert_eq!(listening.blocks(3).await, [10, 11, 12]);
    let counts = listening.counts();
    assert_eq!((counts.batches, counts.losses, counts.connected), (3, 0, 1));
}

#[tokio::test]
async fn a_late_comer_gets_the_beginning_by_replay() {
    let mut publisher = Publisher::start().await;
    for block in 0..50 {
        publisher.keep(batch(block));
    }
    let mut listening = Listening::to(publisher.events_port, Some(publisher.replay_port), 1).await;
    assert_eq!(listening.blocks(50).await, (0..50).collect::<Vec<_>>());
    publisher.subscribed().await;
    publisher.publish(batch(50)).await;
    assert_eq!(listening.blocks(1).await, [50]);
    assert_eq!(listening.counts().losses, 0);
}

#[tokio::test]
async fn a_late_comer_without_replay_says_so() {
    let mut publisher = Publisher::start().await;
    for _ in 0..7 {
        publisher.skip();
    }
    let mut listening = Listening::to(publisher.events_port, None, 1).await;
    publisher.subscribed().await;
    publisher.publish(batch(7)).await;
    assert_eq!(listening.lost().await, Lost::Beginning { messages: 7 });
    assert_eq!(listening.blocks(1).await, [7]);
}

#[tokio::test]
async fn a_gap_is_filled_by_replay() {
    let mut publisher = Publisher::start().await;
    let mut listening = Listening::to(publisher.events_port, Some(publisher.replay_port), 1).await;
    publisher.subscribed().await;
    publisher.publish(batch(0)).await;
    assert_eq!(listening.blocks(1).await, [0]);
    publisher.keep(batch(1));
    publisher.keep(batch(2));
    publisher.publish(batch(3)).await;
    publisher.publish(batch(4)).await;
    assert_eq!(listening.blocks(4).await, [1, 2, 3, 4]);
    assert_eq!(listening.counts().losses, 0);
}

#[tokio::test]
async fn a_lost_last_message_is_found_in_the_silence_after_it() {
    let mut publisher = Publisher::start().await;
    let mut listening = Listening::to(publisher.events_port, Some(publisher.replay_port), 1).await;
    publisher.subscribed().await;
    publisher.publish(batch(0)).await;
    assert_eq!(listening.blocks(1).await, [0]);
    publisher.keep(batch(1));
    assert_eq!(listening.blocks(1).await, [1]);
}

/// Others lost events without a word and routed at random for ever after.
#[tokio::test]
async fn a_gap_that_cannot_be_filled_is_loud_and_costs_the_exact_knowledge() {
    let mut publisher = Publisher::start().await;
    let mut listening = Listening::to(publisher.events_port, Some(publisher.replay_port), 1).await;
    publisher.subscribed().await;
    publisher.publish(batch(0)).await;
    assert_eq!(listening.blocks(1).await, [0]);
    publisher.skip();
    publisher.skip();
    publisher.forget_before(2);
    publisher.publish(batch(3)).await;
    assert_eq!(listening.lost().await, Lost::Gap { messages: 2 });
    assert_eq!(listening.blocks(1).await, [3]);
    let counts = listening.counts();
    assert_eq!((counts.losses, counts.missed), (1, 2));
}

#[tokio::test]
async fn a_restarted_worker_is_known_for_a_new_one() {
    let mut publisher = Publisher::start().await;
    let mut listening = Listening::to(publisher.events_port, Some(publisher.replay_port), 1).await;
    publisher.subscribed().await;
    for block in 0..3 {
        publisher.publish(batch(block)).await;
    }
    assert_eq!(listening.blocks(3).await, [0, 1, 2]);
    let (events, replay) = publisher.kill().await;

    let mut reborn = Publisher::start_on(events, replay).await;
    for block in 100..105 {
        reborn.keep(batch(block));
    }
    assert_eq!(listening.lost().await, Lost::Restart);
    assert_eq!(listening.blocks(5).await, [100, 101, 102, 103, 104]);
    reborn.subscribed().await;
    reborn.publish(batch(105)).await;
    assert_eq!(listening.blocks(1).await, [105]);
}

#[tokio::test]
async fn what_was_missed_while_the_line_was_down_is_caught_up_with() {
    let mut publisher = Publisher::start().await;
    let mut listening = Listening::to(publisher.events_port, Some(publisher.replay_port), 1).await;
    publisher.subscribed().await;
    publisher.publish(batch(0)).await;
    assert_eq!(listening.blocks(1).await, [0]);
    let (events, replay) = publisher.kill().await;

    let mut same = Publisher::start_on(events, replay).await;
    for block in 0..4 {
        same.keep(batch(block));
    }
    assert_eq!(listening.blocks(3).await, [1, 2, 3]);
    assert_eq!(listening.counts().losses, 0);
}

#[tokio::test]
async fn an_unreadable_message_is_counted_and_the_next_one_is_read() {
    let mut publisher = Publisher::start().await;
    let mut listening = Listening::to(publisher.events_port, None, 1).await;
    publisher.subscribed().await;
    publisher.publish(b"\xc1 no msgpack".to_vec()).await;
    assert_eq!(listening.lost().await, Lost::Unreadable);
    publisher.publish(batch(1)).await;
    assert_eq!(listening.blocks(1).await, [1]);
    assert_eq!(listening.counts().unreadable, 1);
}

#[tokio::test]
async fn every_rank_is_listened_to_on_its_own_port() {
    let (mut first, mut second) = loop {
        let port = free_port().await;
        let next = tokio::net::TcpListener::bind(("127.0.0.1", port.wrapping_add(1))).await;
        if port < u16::MAX && next.is_ok() {
            drop(next);
            break (
                Publisher::start_on(port, 0).await,
                Publisher::start_on(port + 1, 0).await,
            );
        }
    };
    let mut listening = Listening::to(first.events_port, None, 2).await;
    first.subscribed().await;
    second.subscribed().await;
    first.publish(batch(1)).await;
    second.publish(batch(2)).await;
    let mut seen = vec![listening.next().await.rank, listening.next().await.rank];
    seen.sort_unstable();
    assert_eq!(seen, [0, 1]);
}

#[tokio::test]
async fn a_slow_index_slows_the_listener_and_loses_nothing() {
    let mut publisher = Publisher::start().await;
    for block in 0..5_000 {
        publisher.keep(batch(block));
    }
    let mut listening = Listening::to(publisher.events_port, Some(publisher.replay_port), 1).await;
    // The channel fills up while nobody takes anything out of it.
    eventually("the channel is full", || listening.counts().batches > 1_000).await;
    assert_eq!(
        listening.blocks(5_000).await,
        (0..5_000).collect::<Vec<_>>()
    );
    assert_eq!(listening.counts().losses, 0);
}

/// The library would reserve what a frame announces. A peer that announces an exabyte must cost nothing.
#[tokio::test]
async fn a_peer_that_announces_an_absurd_frame_is_hung_up_on() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let listening = Listening::to(port, None, 1).await;
    for _ in 0..3 {
        let (mut stream, _) = tokio::time::timeout(PATIENCE, listener.accept())
            .await
            .unwrap()
            .unwrap();
        let mut greeting = [0; 64];
        stream.read_exact(&mut greeting).await.unwrap();
        stream.write_all(&greeting).await.unwrap();
        stream
            .write_all(b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB")
            .await
            .unwrap();
        stream
            .write_all(b"\x02\x0f\xff\xff\xff\xff\xff\xff\xff")
            .await
            .unwrap();
        let mut rest = Vec::new();
        let hung_up = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        assert!(hung_up.is_ok(), "the connection should be closed");
    }
    assert_eq!(listening.counts().batches, 0);
}
