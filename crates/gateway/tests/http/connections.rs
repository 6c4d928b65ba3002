//! Connections that misbehave, and many at once.

use std::time::{Duration, Instant};

use crate::support::client::{get, post};
use crate::support::{Setup, recited};
use engine::EngineConfig;
use forespeak_gateway::ServerConfig;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn impatient() -> Setup {
    Setup {
        server: ServerConfig {
            header_timeout: Duration::from_millis(200),
            ..Setup::default().server
        },
        ..Setup::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_finishes_its_headers_is_cut_off() {
    let running = impatient().start();
    for start in [
        "",
        "P",
        "PRI * HTTP/2.0\r\n",
        "GET /health HT",
        "GET /health HTTP/1.1\r\nhost: t\r\nx-slow: ",
    ] {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(start.as_bytes()).await.unwrap();
        let begun = Instant::now();
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut rest));
        let _ = closed
            .await
            .unwrap_or_else(|_| panic!("still open after {start:?}"));
        assert!(begun.elapsed() >= Duration::from_millis(100), "{start:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_keep_alive_connection_is_closed() {
    let running = impatient().start();
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nhost: t\r\n\r\n")
        .await
        .unwrap();
    let mut all = Vec::new();
    tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut all))
        .await
        .expect("it is closed")
        .unwrap();
    assert!(all.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_http_is_refused_and_harms_nobody() {
    let running = Setup::default().start();
    let long_header = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    for garbage in [
        "\0\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-length: -5\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        &long_header,
    ] {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        let _ = stream.write_all(garbage.as_bytes()).await;
        let mut answer = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer));
        let _ = closed.await.expect("it is closed");
        let text = String::from_utf8_lossy(&answer);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
    }
    assert_eq!(get(running.address, "/health").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_connections_than_slots_wait_for_their_turn() {
    let running = Setup {
        server: ServerConfig {
            max_connections: 2,
            ..Setup::default().server
        },
        ..Setup::default()
    }
    .start();
    let address = running.address;
    let answers: Vec<_> = (0..10)
        .map(|_| tokio::spawn(async move { get(address, "/health").await.status }))
        .collect();
    for answer in answers {
        assert_eq!(answer.await.unwrap(), 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_streams_with_a_cache_for_twenty_all_finish() {
    let running = Setup {
        engine: EngineConfig {
            max_model_len: 512,
            // Twenty sequences of 64 tokens.
            num_blocks: 20 * 4,
            max_num_seqs: 64,
            ..EngineConfig::default()
        },
        ..Setup::default()
    }
    .start();
    let address = running.address;
    let streams: Vec<_> = (0..200_usize)
        .map(|index| {
            tokio::spawn(async move {
                let prompt = 8 + index % 8;
                // Different first bytes: no two share a prefix.
                let prompt_text = format!("{index:03}{}", "x".repeat(prompt - 3));
                let request = json!({"prompt": prompt_text, "max_tokens": 48, "stream": true});
                let answer = post(address, "/v1/completions", &request).await;
                let text: String = answer
                    .chunks()
                    .iter()
                    .filter_map(|chunk| chunk["choices"][0]["text"].as_str().map(str::to_owned))
                    .collect();
                assert_eq!(text, recited(prompt, 48));
            })
        })
        .collect();
    for stream in streams {
        stream.await.unwrap();
    }
    crate::support::eventually("all is free", || {
        let metrics = running.engine.metrics();
        metrics.running() == 0 && metrics.kv_cache_usage() == 0.0
    })
    .await;
}
