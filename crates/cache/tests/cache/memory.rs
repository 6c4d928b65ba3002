//! One gateway, its own memory.

use std::sync::Arc;
use std::time::Duration;

use forespeak_cache as cache;

use cache::{Cache, Directives, Mode, Policy, Scope, Secret, Stores, Subject};
use serde_json::Value;

use crate::support::{Server, TENANT, ask, ask_as, chat, gated, streamed, until};

fn memory() -> Arc<Cache> {
    Arc::new(Cache::new(&Secret::random(), &Stores::default()).unwrap())
}

/// Asks once and waits until the answer is kept.
async fn prime(cache: &Arc<Cache>, server: &Server, body: &str) {
    let stored = cache.counts().stored;
    assert_eq!(ask(cache, body, || server.answer(body)).await.how, "MISS");
    until("the answer is kept", async || {
        cache.counts().stored > stored && cache.counts().flights == 0
    })
    .await;
}

#[tokio::test]
async fn whichever_way_it_was_asked_first_it_is_answered_both_ways() {
    for first in [chat("hi"), streamed("hi")] {
        let (cache, server) = (memory(), Server::default());
        prime(&cache, &server, &first).await;
        for again in [chat("hi"), streamed("hi")] {
            let seen = ask(&cache, &again, || unreachable!("it is kept")).await;
            assert_eq!((seen.how, seen.status), ("HIT", 200));
            assert_eq!(seen.text(), "1:0 1:1 1:2 1:3 1:4 ");
            assert_eq!(
                seen.body.ends_with("data: [DONE]\n\n"),
                again.contains("stream")
            );
        }
        let with_usage = streamed("hi").replace(
            "\"stream\":true",
            "\"stream\":true,\"stream_options\":{\"include_usage\":true}",
        );
        let seen = ask(&cache, &with_usage, || unreachable!("it is kept")).await;
        assert!(seen.body.contains("\"cached_tokens\":3"), "{}", seen.body);
        let plain = ask(&cache, &streamed("hi"), || unreachable!("it is kept")).await;
        assert!(!plain.body.contains("usage"), "{}", plain.body);
        let (counts, saved) = (cache.counts(), cache.saved()[0].clone());
        assert_eq!((counts.hits[0], counts.misses), (4, 1));
        assert_eq!((saved.prompt_tokens, saved.completion_tokens), (12, 20));
    }
}

#[tokio::test]
async fn a_hit_says_that_its_prompt_was_cached() {
    let (cache, server) = (memory(), Server::default());
    prime(&cache, &server, &chat("hi")).await;
    let seen = ask(&cache, &chat("hi"), || unreachable!("it is kept")).await;
    let body: Value = serde_json::from_str(&seen.body).unwrap();
    assert_eq!(body["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
    assert_eq!(body["id"], "c1");
}

#[tokio::test]
async fn what_may_not_be_kept_is_not() {
    let (cache, server) = (memory(), Server::default());
    let sampled = chat("hi").replace("\"temperature\":0", "\"temperature\":1");
    let unknown = chat("hi").replace("\"temperature\":0", "\"temperature\":0,\"new\":1");
    for body in [&sampled, &unknown] {
        for _ in 0..2 {
            assert_eq!(
                ask(&cache, body, || server.answer(body)).await.how,
                "BYPASS"
            );
        }
    }
    assert_eq!(server.count(), 4);
    let counts = cache.counts();
    assert_eq!((counts.stored, counts.bypassed.iter().sum::<u64>()), (0, 4));
}

#[tokio::test]
async fn a_request_may_ask_past_the_cache() {
    let (cache, server) = (memory(), Server::default());
    prime(&cache, &server, &chat("hi")).await;
    let asked = |directives| {
        let (cache, server) = (&cache, &server);
        async move {
            let body = chat("hi");
            ask_as(cache, TENANT, Policy::default(), directives, &body, || {
                server.answer(&body)
            })
            .await
        }
    };
    let off = asked(Directives::read(Some("no-store"), None)).await;
    assert_eq!(
        (off.how, off.text().as_str()),
        ("BYPASS", "2:0 2:1 2:2 2:3 2:4 ")
    );
    assert_eq!(
        ask(&cache, &chat("hi"), || unreachable!()).await.text(),
        "1:0 1:1 1:2 1:3 1:4 "
    );
    // Asking past it refreshes what is kept.
    let stored = cache.counts().stored;
    let fresh = asked(Directives::read(None, Some("refresh"))).await;
    assert_eq!(
        (fresh.how, fresh.text().as_str()),
        ("MISS", "3:0 3:1 3:2 3:3 3:4 ")
    );
    until("the new answer is kept", async || {
        cache.counts().stored > stored
    })
    .await;
    until("the new answer is found", async || {
        ask(&cache, &chat("hi"), || unreachable!()).await.text() == fresh.text()
    })
    .await;
}

#[tokio::test]
async fn what_has_expired_is_asked_for_again() {
    let (cache, server) = (memory(), Server::default());
    let policy = Policy {
        ttl: Duration::ZERO,
        ..Policy::default()
    };
    let body = chat("hi");
    for count in 1..=2 {
        let directives = Directives::default();
        let seen = ask_as(&cache, TENANT, policy, directives, &body, || {
            server.answer(&body)
        })
        .await;
        assert_eq!((seen.how, server.count()), ("MISS", count));
        until("the flight is over", async || cache.counts().flights == 0).await;
    }
    assert_eq!(cache.counts().stale, 1);
}

#[tokio::test]
async fn what_is_too_large_is_not_kept() {
    let (cache, server) = (memory(), Server::default());
    let policy = Policy {
        max_entry_bytes: 100,
        ..Policy::default()
    };
    let body = chat("hi");
    ask_as(&cache, TENANT, policy, Directives::default(), &body, || {
        server.answer(&body)
    })
    .await;
    until("it was looked at", async || cache.counts().unfit[4] == 1).await;
    assert_eq!(cache.counts().stored, 0);
}

#[tokio::test]
async fn random_answers_take_turns() {
    let (cache, server) = (memory(), Server::default());
    let policy = Policy {
        mode: Mode::Everything { variants: 2 },
        ..Policy::default()
    };
    let body = chat("hi").replace("\"temperature\":0", "\"temperature\":1");
    let mut seen = Vec::new();
    for _ in 0..6 {
        let directives = Directives::default();
        let one = ask_as(&cache, TENANT, policy, directives, &body, || {
            server.answer(&body)
        })
        .await;
        until("the flight is over", async || cache.counts().flights == 0).await;
        seen.push(format!("{} {}", one.how, &one.text()[..1]));
    }
    assert_eq!(
        seen,
        ["MISS 1", "MISS 2", "HIT 1", "HIT 2", "HIT 1", "HIT 2"]
    );
}

#[tokio::test]
async fn an_invalidation_reaches_its_scope_and_what_was_under_way() {
    let context = Subject {
        context: Some("docs-1"),
        ..TENANT
    };
    let tag = Scope::Context {
        tenant: "tenant",
        tag: "docs-1",
    };
    for scope in [Scope::All, Scope::Tenant("tenant"), Scope::Model("m"), tag] {
        let (cache, server) = (memory(), Server::default());
        let body = chat("hi");
        let ask = |cache: &Arc<Cache>| {
            let (cache, body, server) = (Arc::clone(cache), body.clone(), &server);
            async move {
                let start = || server.answer(&body);
                ask_as(
                    &cache,
                    context,
                    Policy::default(),
                    Directives::default(),
                    &body,
                    start,
                )
                .await
            }
        };
        assert_eq!(ask(&cache).await.how, "MISS");
        until("it is kept", async || cache.counts().flights == 0).await;
        assert_eq!(ask(&cache).await.how, "HIT");
        assert!(cache.invalidate(scope).await);
        assert_eq!(ask(&cache).await.how, "MISS", "{scope:?}");
    }
}

#[tokio::test]
async fn an_answer_that_was_under_way_when_its_context_changed_is_not_kept() {
    let (cache, server) = (memory(), Server::default());
    let body = chat("hi");
    let (release, answer) = gated(server.answer(&body));
    let asked = tokio::spawn({
        let (cache, body) = (Arc::clone(&cache), body.clone());
        async move { ask(&cache, &body, || answer).await }
    });
    until("it is being answered", async || cache.counts().flights == 1).await;
    assert!(cache.invalidate(Scope::Model("m")).await);
    release.send(()).unwrap();
    assert_eq!(asked.await.unwrap().how, "MISS");
    until("the flight is over", async || cache.counts().flights == 0).await;
    assert_eq!(
        ask(&cache, &body, || server.answer(&body)).await.how,
        "MISS"
    );
}
