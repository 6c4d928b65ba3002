//! Many who ask the same at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forespeak_cache as cache;
use http::StatusCode;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use cache::{Broken, Cache, Secret, Source, Stores};

use crate::support::{Seen, Server, ask, chat, gated, head, paced, streamed, until};

fn memory() -> Arc<Cache> {
    Arc::new(Cache::new(&Secret::random(), &Stores::default()).unwrap())
}

/// 200 clients, streaming or not, of which some leave at some point: one generation, and everybody who stays
/// hears the same.
#[test]
fn two_hundred_who_ask_the_same_share_one_generation() {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(20));
    let client = (any::<bool>(), proptest::option::weighted(0.4, 0usize..4000));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runner
        .run(&proptest::collection::vec(client, 200), |clients| {
            runtime.block_on(async {
                let (cache, server) = (memory(), Arc::new(Server::default()));
                let tasks: Vec<_> = clients
                    .iter()
                    .map(|(streams, leaves_after)| {
                        let body = if *streams { streamed("hi") } else { chat("hi") };
                        let (cache, server) = (Arc::clone(&cache), Arc::clone(&server));
                        let leaves_after = *leaves_after;
                        tokio::spawn(async move {
                            let asking = ask(&cache, &body, || server.answer(&body));
                            let leaving = async {
                                match leaves_after {
                                    None => std::future::pending().await,
                                    Some(turns) => {
                                        for _ in 0..turns {
                                            tokio::task::yield_now().await;
                                        }
                                    }
                                }
                            };
                            tokio::select! {
                                biased;
                                seen = asking => Some(seen),
                                () = leaving => None,
                            }
                        })
                    })
                    .collect();
                let mut texts = Vec::new();
                for task in tasks {
                    texts.extend(task.await.unwrap().map(|seen: Seen| seen.text()));
                }
                // If everybody had left at some moment, a second generation would be right; somebody stays.
                if clients.iter().any(|(_, leaves)| leaves.is_none()) {
                    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
                    assert!(texts[0].starts_with("1:0 1:1 ") || server.count() > 1);
                }
                // A flight that can no longer be joined is held until the last who has it lets go.
                until("nothing is in flight and nothing is held", async || {
                    let counts = cache.counts();
                    (counts.flights, counts.flight_bytes) == (0, 0)
                })
                .await;
            });
            Ok(())
        })
        .unwrap();
}

#[tokio::test]
async fn nobody_leaves_one_generation_is_enough() {
    let (cache, server) = (memory(), Arc::new(Server::default()));
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let body = if number % 2 == 0 {
                streamed("hi")
            } else {
                chat("hi")
            };
            let (cache, server) = (Arc::clone(&cache), Arc::clone(&server));
            tokio::spawn(async move { ask(&cache, &body, || server.answer(&body)).await })
        })
        .collect();
    let mut ways = [0; 3];
    for task in tasks {
        let seen = task.await.unwrap();
        assert_eq!(
            (seen.status, seen.text().as_str()),
            (200, "1:0 1:1 1:2 1:3 1:4 ")
        );
        match seen.how {
            "MISS" => ways[0] += 1,
            "COALESCED" => ways[1] += 1,
            "HIT" => ways[2] += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!((server.count(), ways[0]), (1, 1), "{ways:?}");
    assert!(ways[1] > 0, "{ways:?}");
    assert_eq!(cache.saved()[0].completion_tokens, 199 * 5);
}

#[tokio::test]
async fn when_the_first_leaves_the_others_are_still_answered() {
    for (first, other) in [
        (streamed("hi"), streamed("hi")),
        (chat("hi"), streamed("hi")),
    ] {
        let (cache, server) = (memory(), Arc::new(Server::default()));
        let (release, answer) = gated(server.answer(&first));
        let leader = tokio::spawn({
            let (cache, body) = (Arc::clone(&cache), first.clone());
            async move { ask(&cache, &body, || answer).await }
        });
        until("somebody asks", async || cache.counts().flights == 1).await;
        let follower = tokio::spawn({
            let (cache, body) = (Arc::clone(&cache), other.clone());
            async move { ask(&cache, &body, || unreachable!("it is being answered")).await }
        });
        tokio::task::yield_now().await;
        leader.abort();
        assert!(leader.await.is_err());
        release.send(()).unwrap();
        let seen = follower.await.unwrap();
        assert_eq!(
            (seen.how, seen.text().as_str()),
            ("COALESCED", "1:0 1:1 1:2 1:3 1:4 ")
        );
        assert_eq!(server.count(), 1);
    }
}

/// The first attempt fails in some way; everybody but whoever made it is answered by the next.
#[tokio::test]
async fn when_an_attempt_fails_the_others_try_again() {
    let failures: [fn(&Server) -> Source; 3] = [
        |server| server.refuse(StatusCode::SERVICE_UNAVAILABLE),
        |server| server.refuse(StatusCode::TOO_MANY_REQUESTS),
        |server| {
            server.generations.fetch_add(1, Ordering::SeqCst);
            paced(vec![
                Ok(head(StatusCode::OK, "application/json")),
                Err(Broken),
            ])
        },
    ];
    for failure in failures {
        let (cache, server) = (memory(), Arc::new(Server::default()));
        let failed = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (cache, server, failed) =
                    (Arc::clone(&cache), Arc::clone(&server), Arc::clone(&failed));
                tokio::spawn(async move {
                    let body = chat("hi");
                    let start = || {
                        if failed.fetch_add(1, Ordering::SeqCst) == 0 {
                            failure(&server)
                        } else {
                            server.answer(&body)
                        }
                    };
                    ask(&cache, &body, start).await
                })
            })
            .collect();
        let mut statuses = Vec::new();
        for task in tasks {
            statuses.push(task.await.unwrap().status);
        }
        statuses.sort_unstable();
        assert_eq!(
            statuses.iter().filter(|status| **status == 200).count(),
            19,
            "{statuses:?}"
        );
        assert_eq!(server.count(), 2);
        assert_eq!(cache.counts().retries, 19);
    }
}

#[tokio::test]
async fn when_everything_fails_everybody_hears_it_from_an_attempt_of_its_own() {
    let (cache, server) = (memory(), Arc::new(Server::default()));
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let (cache, server) = (Arc::clone(&cache), Arc::clone(&server));
            tokio::spawn(async move {
                let start = || server.refuse(StatusCode::SERVICE_UNAVAILABLE);
                ask(&cache, &chat("hi"), start).await.status
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), 503);
    }
    assert_eq!(server.count(), 10);
    assert_eq!(cache.counts().stored, 0);
}

#[tokio::test]
async fn a_request_that_is_wrong_is_refused_once_for_all() {
    let (cache, server) = (memory(), Arc::new(Server::default()));
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let (cache, server) = (Arc::clone(&cache), Arc::clone(&server));
            tokio::spawn(async move {
                let start = || server.refuse(StatusCode::BAD_REQUEST);
                ask(&cache, &chat("hi"), start).await
            })
        })
        .collect();
    for task in tasks {
        let seen = task.await.unwrap();
        assert_eq!((seen.status, seen.body.as_str()), (400, "{\"error\":{}}"));
    }
    assert_eq!(server.count(), 1);
    until("it is not kept", async || cache.counts().flights == 0).await;
    assert_eq!(cache.counts().stored, 0);
}
