//! How much a tenant may ask for.

use std::time::Duration;

use forespeak_gateway::tenants::{ANONYMOUS, Limits, SaltSecret, TenantSpec, Tenants};
use serde_json::json;

use crate::support::client::{open, post, read_until};
use crate::support::{Setup, eventually};

const COMPLETIONS: &str = "/v1/completions";

fn limited(limits: Limits) -> Tenants {
    let spec = TenantSpec {
        anonymous: true,
        limits,
        ..TenantSpec::only(ANONYMOUS)
    };
    Tenants::new(vec![spec], &SaltSecret::random(), &Tenants::default()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_at_a_time_means_until_the_answer_has_ended() {
    let running = Setup {
        step: Duration::from_millis(5),
        tenants: limited(Limits {
            concurrent: Some(1),
            ..Limits::default()
        }),
        ..Setup::default()
    }
    .start();
    let long = json!({"prompt": "x", "max_tokens": 500, "stream": true, "ignore_eos": true});
    let mut stream = open(running.address, COMPLETIONS, &long).await;
    read_until(&mut stream, "text_completion").await;
    let short = json!({"prompt": "x", "max_tokens": 1});
    let refused = post(running.address, COMPLETIONS, &short).await;
    assert_eq!(refused.status, 429);
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    drop(stream);
    // A client that leaves makes room as soon as that is noticed.
    eventually("nothing runs", || running.engine.metrics().running() == 0).await;
    let let_in = async {
        while post(running.address, COMPLETIONS, &short).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), let_in)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_counted_when_they_are_known() {
    let running = Setup {
        tenants: limited(Limits {
            tokens_per_minute: Some(100),
            ..Limits::default()
        }),
        ..Setup::default()
    }
    .start();
    let request = json!({"prompt": "x", "max_tokens": 60, "ignore_eos": true});
    // 61 each: the second is let in, and leaves a debt.
    for _ in 0..2 {
        let answer = post(running.address, COMPLETIONS, &request).await;
        assert_eq!(answer.status, 200);
        assert!(
            answer.head.contains("x-ratelimit-limit-tokens: 100"),
            "{}",
            answer.head
        );
    }
    let refused = post(running.address, COMPLETIONS, &request).await;
    assert_eq!(refused.status, 429);
    assert!(refused.head.contains("x-ratelimit-remaining-tokens: 0"));
    let retry = refused
        .head
        .lines()
        .find_map(|line| line.strip_prefix("retry-after: "));
    let seconds: u64 = retry.unwrap().trim().parse().unwrap();
    // 22 tokens over, at 100 a minute.
    assert!((1..=14).contains(&seconds), "{seconds}");
}
