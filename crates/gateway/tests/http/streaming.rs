//! Streams of events.

use crate::support::client::post;
use crate::support::{Setup, recited};
use serde_json::{Value, json};

fn text_of(chunks: &[Value], path: &str, index: usize) -> String {
    chunks
        .iter()
        .flat_map(|chunk| chunk["choices"].as_array().unwrap())
        .filter(|choice| choice["index"] == index)
        .filter_map(|choice| choice.pointer(path)?.as_str())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_streams_role_text_end_and_usage() {
    let running = Setup::default().start();
    let request = json!({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 6,
                         "stream": true, "stream_options": {"include_usage": true}});
    let answer = post(running.address, "/v1/chat/completions", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(
        answer.head.contains("content-type: text/event-stream"),
        "{}",
        answer.head
    );
    let chunks = answer.chunks();
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(text_of(&chunks, "/delta/content", 0), recited(22, 6));
    let (usage, rest) = chunks.split_last().unwrap();
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], 6);
    assert_eq!(
        rest.last().unwrap()["choices"][0]["finish_reason"],
        "length"
    );
    assert!(rest.iter().all(|chunk| chunk["usage"].is_null()));
    assert!(rest.iter().all(|chunk| chunk["id"] == usage["id"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_prompts_and_answers_share_one_stream() {
    let running = Setup::default().start();
    let request =
        json!({"prompt": ["a", "bb"], "n": 2, "max_tokens": 30, "stream": true, "echo": true});
    let chunks = post(running.address, "/v1/completions", &request)
        .await
        .chunks();
    for (index, (prompt, length)) in [("a", 1), ("a", 1), ("bb", 2), ("bb", 2)]
        .iter()
        .enumerate()
    {
        let expected = format!("{prompt}{}", recited(*length, 30));
        assert_eq!(text_of(&chunks, "/text", index), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_chunk_ever_ends_inside_a_character() {
    let script = "é€😀";
    let running = Setup {
        script: crate::support::script(script),
        ..Setup::default()
    }
    .start();
    // Nine bytes of script after a prompt of one: every character is spread over several tokens.
    let request = json!({"prompt": "1", "max_tokens": 90, "stream": true});
    let answer = post(running.address, "/v1/completions", &request).await;
    let chunks = answer.chunks();
    assert_eq!(text_of(&chunks, "/text", 0), script.repeat(10));
    assert!(!answer.text().contains('\u{fffd}'));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_string_is_never_shown_in_part() {
    let running = Setup::default().start();
    let whole = recited(1, 10);
    let request = json!({"prompt": "1", "max_tokens": 50, "stream": true, "stop": &whole[3..8]});
    let chunks = post(running.address, "/v1/completions", &request)
        .await
        .chunks();
    assert_eq!(text_of(&chunks, "/text", 0), whole[..3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn logprobs_token_ids_and_running_usage_ride_along() {
    let running = Setup::default().start();
    let request = json!({"prompt": "12", "max_tokens": 5, "stream": true, "logprobs": 2,
                         "return_token_ids": true,
                         "stream_options": {"continuous_usage_stats": true}});
    let chunks = post(running.address, "/v1/completions", &request)
        .await
        .chunks();
    let ids: Vec<u64> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["token_ids"].as_array())
        .flatten()
        .map(|id| id.as_u64().unwrap())
        .collect();
    let expected: Vec<u64> = recited(2, 5).bytes().map(u64::from).collect();
    assert_eq!(ids, expected);
    assert_eq!(chunks[0]["choices"][0]["prompt_token_ids"], json!([49, 50]));
    let offsets: Vec<u64> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["logprobs"]["text_offset"].as_array())
        .flatten()
        .map(|offset| offset.as_u64().unwrap())
        .collect();
    assert_eq!(offsets, [0, 1, 2, 3, 4]);
    assert_eq!(chunks.last().unwrap()["usage"]["completion_tokens"], 5);
}
