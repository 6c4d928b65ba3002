//! `/v1/chat/completions`, answered in one piece.

use crate::support::client::{get, post};
use crate::support::{MODEL, Setup, recited};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

/// The length of `[user]hello[assistant]`.
const PROMPT: usize = 22;

fn hello() -> Value {
    json!([{"role": "user", "content": "hello"}])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_is_answered_in_openai_shape() {
    let running = Setup::default().start();
    let request = json!({"model": MODEL, "messages": hello(), "max_tokens": 5, "temperature": 0});
    let answer = post(running.address, CHAT, &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["model"], MODEL);
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(
        body["choices"],
        json!([{"index": 0, "message": {"role": "assistant", "content": recited(PROMPT, 5), "refusal": null},
                "logprobs": null, "finish_reason": "length", "stop_reason": null}])
    );
    assert_eq!(
        body["usage"],
        json!({"prompt_tokens": PROMPT, "completion_tokens": 5, "total_tokens": PROMPT + 5,
               "prompt_tokens_details": {"cached_tokens": 0}})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_prompt_comes_out_of_the_prefix_cache() {
    let running = Setup::default().start();
    let request = json!({"messages": hello(), "max_tokens": 2});
    post(running.address, CHAT, &request).await;
    let body = post(running.address, CHAT, &request).await.json();
    assert_eq!(body["usage"]["prompt_tokens_details"]["cached_tokens"], 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn n_answers_are_n_choices() {
    let running = Setup::default().start();
    let request = json!({"messages": hello(), "max_tokens": 3, "n": 4});
    let body = post(running.address, CHAT, &request).await.json();
    let choices = body["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    for (index, choice) in choices.iter().enumerate() {
        assert_eq!(choice["index"], index);
        assert_eq!(choice["message"]["content"], recited(PROMPT, 3));
    }
    assert_eq!(body["usage"]["completion_tokens"], 12);
    assert_eq!(body["usage"]["prompt_tokens"], PROMPT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_string_across_tokens_ends_the_answer_and_is_named() {
    let running = Setup::default().start();
    let whole = recited(PROMPT, 10);
    let stop = &whole[4..7];
    let request = json!({"messages": hello(), "max_tokens": 50, "stop": [stop, "never"]});
    let body = post(running.address, CHAT, &request).await.json();
    assert_eq!(body["choices"][0]["message"]["content"], whole[..4]);
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert_eq!(body["choices"][0]["stop_reason"], stop);
}

#[tokio::test(flavor = "multi_thread")]
async fn logprobs_have_text_bytes_and_alternatives() {
    let running = Setup::default().start();
    let request =
        json!({"messages": hello(), "max_tokens": 2, "logprobs": true, "top_logprobs": 3});
    let body = post(running.address, CHAT, &request).await.json();
    let content = body["choices"][0]["logprobs"]["content"]
        .as_array()
        .unwrap();
    assert_eq!(content.len(), 2);
    let expected = recited(PROMPT, 1);
    assert_eq!(content[0]["token"], expected);
    assert_eq!(content[0]["bytes"], json!(expected.as_bytes()));
    assert!(content[0]["logprob"].as_f64().unwrap() > -1e-3);
    let top = content[0]["top_logprobs"].as_array().unwrap();
    assert_eq!(top.len(), 3);
    assert_eq!(top[0]["token"], expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn vllm_extensions_are_answered() {
    let running = Setup::default().start();
    let request = json!({"messages": hello(), "max_tokens": 2, "return_token_ids": true,
                         "prompt_logprobs": 0, "ignore_eos": true, "top_k": -1});
    let body = post(running.address, CHAT, &request).await.json();
    assert_eq!(body["prompt_token_ids"].as_array().unwrap().len(), PROMPT);
    assert_eq!(body["choices"][0]["token_ids"].as_array().unwrap().len(), 2);
    let prompt_logprobs = body["prompt_logprobs"].as_array().unwrap();
    assert_eq!(prompt_logprobs.len(), PROMPT);
    assert_eq!(prompt_logprobs[0], Value::Null);
    assert!(prompt_logprobs[1]["117"]["logprob"].is_number(), "{body}");
    // The reciter would have said something else: all but one token are equally unlikely.
    assert_eq!(prompt_logprobs[1]["117"]["rank"], 118, "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn models_tokens_and_status_are_answered() {
    let running = Setup::default().start();
    let models = get(running.address, "/v1/models").await.json();
    assert_eq!(models["data"][0]["id"], MODEL);
    assert_eq!(models["data"][0]["max_model_len"], 512);
    assert_eq!(
        get(running.address, "/v1/models/alias").await.json()["id"],
        "alias"
    );

    let request = json!({"prompt": "hé", "return_token_strs": true});
    let tokens = post(running.address, "/tokenize", &request).await.json();
    assert_eq!(tokens["tokens"], json!([104, 195, 169]));
    assert_eq!(tokens["count"], 3);
    let chat = post(running.address, "/tokenize", &json!({"messages": hello()}))
        .await
        .json();
    assert_eq!(chat["count"], PROMPT);
    let request = json!({"tokens": [104, 195, 169]});
    let text = post(running.address, "/detokenize", &request).await.json();
    assert_eq!(text["prompt"], "hé");

    for path in ["/health", "/ready"] {
        assert_eq!(get(running.address, path).await.status, 200);
    }
    assert!(get(running.address, "/version").await.json()["version"].is_string());
    let metrics = get(running.address, "/metrics").await.text();
    assert!(
        metrics.contains("forespeak_http_connections 1"),
        "{metrics}"
    );
    assert!(metrics.contains("vllm:num_requests_running"), "{metrics}");
}
