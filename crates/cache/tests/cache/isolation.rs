//! Two tenants, equal prompts, all combinations of what may differ: nobody ever sees what was made for another.

use std::sync::Arc;

use forespeak_cache as cache;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use cache::{Cache, Directives, Mode, Policy, Secret, Stores, Subject};

use crate::support::{Server, TENANT, ask_as, until};

#[derive(Debug, Clone, PartialEq)]
struct Asked {
    tenant: &'static str,
    model: &'static str,
    context: Option<&'static str>,
    system: &'static str,
    sampling: Value,
    stream: bool,
}

impl Asked {
    /// What it asks, apart from how the answer is delivered.
    fn question(
        &self,
    ) -> (
        &'static str,
        &'static str,
        Option<&'static str>,
        &'static str,
        String,
    ) {
        (
            self.tenant,
            self.model,
            self.context,
            self.system,
            self.sampling.to_string(),
        )
    }

    fn body(&self) -> String {
        let mut body = json!({"messages": [{"role": "system", "content": self.system},
                                           {"role": "user", "content": "the same question"}],
                              "stream": self.stream});
        if let (Value::Object(body), Value::Object(sampling)) = (&mut body, &self.sampling) {
            body.extend(sampling.clone());
        }
        body.to_string()
    }
}

fn asked() -> impl Strategy<Value = Asked> {
    (
        prop_oneof![Just("a"), Just("b")],
        prop_oneof![Just("m"), Just("n")],
        prop_oneof![Just(None), Just(Some("docs-1")), Just(Some("docs-2"))],
        prop_oneof![Just("be kind"), Just("be brief")],
        prop_oneof![
            Just(json!({"temperature": 0})),
            Just(json!({"temperature": 0, "max_tokens": 5})),
            Just(json!({"temperature": 1, "seed": 1})),
            Just(json!({"temperature": 1, "seed": 2})),
            Just(json!({"temperature": 1})),
        ],
        any::<bool>(),
    )
        .prop_map(|(tenant, model, context, system, sampling, stream)| Asked {
            tenant,
            model,
            context,
            system,
            sampling,
            stream,
        })
}

#[test]
fn nobody_sees_an_answer_to_another_question_or_of_another_tenant() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut runner = TestRunner::new(ProptestConfig::with_cases(40));
    runner
        .run(&proptest::collection::vec(asked(), 1..60), |all| {
            runtime.block_on(async {
                let cache = Arc::new(Cache::new(&Secret::random(), &Stores::default()).unwrap());
                let server = Server::default();
                let policy = Policy {
                    mode: Mode::Everything { variants: 1 },
                    ..Policy::default()
                };
                let mut known: Vec<((_, _, _, _, String), String)> = Vec::new();
                for asked in &all {
                    let subject = Subject {
                        tenant: asked.tenant,
                        model: asked.model,
                        context: asked.context,
                        ..TENANT
                    };
                    let body = asked.body();
                    let directives = Directives::default();
                    let start = || server.answer(&body);
                    let seen = ask_as(&cache, subject, policy, directives, &body, start).await;
                    let before = known
                        .iter()
                        .find(|(question, _)| *question == asked.question());
                    match before {
                        Some((_, text)) => assert_eq!((seen.how, &seen.text()), ("HIT", text)),
                        None => {
                            assert_eq!(seen.how, "MISS", "{asked:?}");
                            assert!(known.iter().all(|(_, text)| *text != seen.text()));
                            known.push((asked.question(), seen.text()));
                        }
                    }
                    until("it is kept", async || cache.counts().flights == 0).await;
                }
            });
            Ok(())
        })
        .unwrap();
}
