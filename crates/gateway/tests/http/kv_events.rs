//! KV events as a listener made for vLLM sees them.

use crate::support::Setup;
use crate::support::client::post;
use engine::EngineConfig;
use forespeak_gateway::kv_events::{KvEventsConfig, KvEventsPublisher};
use protocol::kv_events::{
    END_OF_REPLAY, ExtraKey, KvEvent, decode_batch, parse_sequence_frame, sequence_frame,
};
use serde_json::json;
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};

#[tokio::test(flavor = "multi_thread")]
async fn stored_blocks_are_published_and_replayed() {
    let running = Setup {
        engine: EngineConfig {
            kv_event_buffer: 64,
            num_blocks: 64,
            max_model_len: 512,
            ..EngineConfig::default()
        },
        ..Setup::default()
    }
    .start();
    let config = KvEventsConfig {
        endpoint: "tcp://127.0.0.1:0".to_owned(),
        replay_endpoint: Some("tcp://127.0.0.1:0".to_owned()),
        topic: "kv@test".to_owned(),
    };
    let events = running.engine.kv_events().unwrap();
    let publisher = KvEventsPublisher::start(config, events).await.unwrap();

    let prompt = "0123456789abcdef0123456789ABCDEF-tail";
    let request = json!({"prompt": prompt, "max_tokens": 1, "cache_salt": "tenant"});
    assert_eq!(
        post(running.address, "/v1/completions", &request)
            .await
            .status,
        200
    );

    let mut dealer = DealerSocket::new();
    dealer
        .connect(publisher.replay_endpoint().unwrap())
        .await
        .unwrap();
    let mut messages = Vec::new();
    // The engine tells of a step after it has answered; ask until its first message is there.
    while messages.is_empty() {
        let mut question = ZmqMessage::from(bytes::Bytes::new());
        question.push_back(bytes::Bytes::copy_from_slice(&sequence_frame(0)));
        dealer.send(question).await.unwrap();
        loop {
            let frames = dealer.recv().await.unwrap().into_vec();
            assert_eq!(frames.len(), 4);
            assert!(frames[0].is_empty());
            let sequence = parse_sequence_frame(&frames[2]).unwrap();
            if sequence == END_OF_REPLAY {
                assert!(frames[1].is_empty() && frames[3].is_empty());
                break;
            }
            assert_eq!(&frames[1][..], b"kv@test");
            assert_eq!(sequence, messages.len() as u64);
            messages.push(decode_batch(&frames[3]).unwrap());
        }
    }
    let stored: Vec<_> = messages
        .iter()
        .flat_map(|batch| &batch.events)
        .filter_map(|event| match event {
            KvEvent::Stored(stored) => Some(stored),
            _ => None,
        })
        .collect();
    let first = stored[0];
    assert_eq!(first.block_size, 16);
    assert_eq!(first.parent_block_hash, None);
    assert_eq!(first.extra_keys[0], [ExtraKey::Text("tenant".to_owned())]);
    let tokens: Vec<u32> = stored
        .iter()
        .flat_map(|stored| stored.token_ids.clone())
        .collect();
    let expected: Vec<u32> = prompt.bytes().take(32).map(u32::from).collect();
    assert_eq!(tokens, expected);

    let mut listener = SubSocket::new();
    listener.connect(publisher.endpoint()).await.unwrap();
    listener.subscribe("kv@").await.unwrap();
    let heard = tokio::spawn(async move { listener.recv().await.unwrap().into_vec() });
    // A subscription takes effect when the publisher has read it, so new prefixes are stored until then.
    let mut attempt = 0;
    while !heard.is_finished() {
        attempt += 1;
        let prompt = format!("{attempt:016}{attempt:016}");
        let request = json!({"prompt": prompt, "max_tokens": 1});
        post(running.address, "/v1/completions", &request).await;
    }
    let frames = heard.await.unwrap();
    assert_eq!(frames.len(), 3);
    assert_eq!(&frames[0][..], b"kv@test");
    assert!(parse_sequence_frame(&frames[1]).unwrap() > 0);
    assert!(!decode_batch(&frames[2]).unwrap().events.is_empty());
}
