//! `/v1/completions`, answered in one piece.

use crate::support::client::post;
use crate::support::{Setup, recited};
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";

#[tokio::test(flavor = "multi_thread")]
async fn a_text_is_continued() {
    let running = Setup::default().start();
    let body = post(running.address, COMPLETIONS, &json!({"prompt": "12345"}))
        .await
        .json();
    assert_eq!(body["object"], "text_completion");
    assert_eq!(
        body["choices"],
        json!([{"index": 0, "text": recited(5, 16), "logprobs": null, "finish_reason": "length",
                "stop_reason": null}])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_of_texts_and_of_tokens_keep_their_order() {
    let running = Setup::default().start();
    for prompt in [json!(["a", "bb", "ccc"]), json!([[1], [2, 2], [3, 3, 3]])] {
        let request = json!({"prompt": prompt, "max_tokens": 2, "n": 2});
        let body = post(running.address, COMPLETIONS, &request).await.json();
        let choices = body["choices"].as_array().unwrap();
        assert_eq!(choices.len(), 6);
        for (index, choice) in choices.iter().enumerate() {
            assert_eq!(choice["index"], index);
            assert_eq!(choice["text"], recited(index / 2 + 1, 2));
        }
        assert_eq!(body["usage"]["prompt_tokens"], 6);
        assert_eq!(body["usage"]["completion_tokens"], 12);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_echo_shows_the_prompt_and_its_logprobs() {
    let running = Setup::default().start();
    for prompt in [json!("xé"), json!([120, 195, 169])] {
        let request = json!({"prompt": prompt, "max_tokens": 2, "echo": true, "logprobs": 1});
        let body = post(running.address, COMPLETIONS, &request).await.json();
        let choice = &body["choices"][0];
        assert_eq!(choice["text"], format!("xé{}", recited(3, 2)));
        let logprobs = &choice["logprobs"];
        assert_eq!(logprobs["tokens"].as_array().unwrap().len(), 5);
        assert_eq!(logprobs["token_logprobs"][0], Value::Null);
        assert!(logprobs["token_logprobs"][1].is_number());
        assert_eq!(logprobs["text_offset"], json!([0, 1, 2, 3, 4]));
        assert_eq!(logprobs["top_logprobs"][4].as_object().unwrap().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_echo_of_no_tokens_is_the_prompt_alone() {
    let running = Setup::default().start();
    let mut request = json!({"prompt": "xyz", "max_tokens": 0, "echo": true, "logprobs": 1});
    let body = post(running.address, COMPLETIONS, &request).await.json();
    let choice = &body["choices"][0];
    assert_eq!(choice["text"], "xyz");
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(
        choice["logprobs"]["tokens"].as_array().unwrap().len(),
        3,
        "{body}"
    );
    assert_eq!(body["usage"]["completion_tokens"], 0);
    request["stream"] = json!(true);
    let chunks = post(running.address, COMPLETIONS, &request).await.chunks();
    let text: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["text"].as_str())
        .collect();
    assert_eq!(text, "xyz");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_text_token_ends_an_answer_unless_ignored() {
    let mut script = crate::support::script("abc");
    script.push(crate::support::END);
    let running = Setup {
        script,
        ..Setup::default()
    }
    .start();
    let request = json!({"prompt": "1", "max_tokens": 8});
    let body = post(running.address, COMPLETIONS, &request).await.json();
    assert_eq!(body["choices"][0]["text"], "abc");
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    let request = json!({"prompt": "1", "max_tokens": 8, "ignore_eos": true});
    let body = post(running.address, COMPLETIONS, &request).await.json();
    assert_eq!(body["choices"][0]["text"], "abcabc");
    assert_eq!(body["choices"][0]["finish_reason"], "length");
}
