use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn events(stream: &str) -> Vec<Event> {
    let mut events = Vec::new();
    Splitter::default().push(Bytes::copy_from_slice(stream.as_bytes()), |event| {
        events.push(event);
    });
    events
}

fn stream(chunks: &[Value]) -> String {
    let mut out = String::new();
    for chunk in chunks {
        out.push_str(&format!("data: {chunk}\n\n"));
    }
    out + "data: [DONE]\n\n"
}

fn chat_chunk(choices: Value) -> Value {
    json!({"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": choices})
}

fn usage_chunk() -> Value {
    let mut chunk = chat_chunk(json!([]));
    chunk["usage"] = json!({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7});
    chunk
}

fn of_stream(route: Route, chunks: &[Value]) -> Result<Recording, Unfit> {
    Recording::of_events(route, &events(&stream(chunks)))
}

fn whole(recording: &Recording) -> Value {
    serde_json::from_slice(recording.json.as_ref().unwrap()).unwrap()
}

fn cached_usage() -> Value {
    json!({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7,
           "prompt_tokens_details": {"cached_tokens": 5}})
}

#[test]
fn a_stream_is_given_again_as_it_was_and_in_one_piece() {
    let chunks = [
        chat_chunk(
            json!([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]),
        ),
        chat_chunk(
            json!([{"index": 0, "delta": {"content": "Hé"}, "logprobs": null, "finish_reason": null}]),
        ),
        chat_chunk(json!([{"index": 0, "delta": {"content": "llo\n"}, "finish_reason": null}])),
        chat_chunk(
            json!([{"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": "END"}]),
        ),
        usage_chunk(),
    ];
    let recording = of_stream(Route::Chat, &chunks).unwrap();
    let plain = Wants {
        stream: true,
        include_usage: false,
    };
    let without_usage = stream(&chunks[..4]);
    assert_eq!(recording.body(plain).unwrap(), without_usage.as_bytes());
    let with_usage = recording
        .body(Wants {
            include_usage: true,
            ..plain
        })
        .unwrap();
    let replayed = events(std::str::from_utf8(&with_usage).unwrap());
    assert_eq!(replayed.len(), 6);
    let usage: Value = serde_json::from_slice(replayed[4].data()).unwrap();
    assert_eq!(usage["usage"], cached_usage());
    assert_eq!(usage["object"], "chat.completion.chunk");
    assert_eq!(
        whole(&recording),
        json!({"id": "c1", "object": "chat.completion", "created": 7, "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Héllo\n", "refusal": null},
                         "logprobs": null, "finish_reason": "stop", "stop_reason": "END"}],
            "usage": cached_usage()})
    );
    assert_eq!(
        (recording.prompt_tokens, recording.completion_tokens),
        (5, 2)
    );
}

#[test]
fn calls_log_probabilities_and_several_choices_are_put_together() {
    let recording = of_stream(
        Route::Chat,
        &[
            chat_chunk(json!([{"index": 1, "delta": {"role": "assistant", "content": ""}}])),
            chat_chunk(json!([{"index": 1, "delta": {"tool_calls": [
                {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}]}}])),
            chat_chunk(json!([{"index": 0, "delta": {"content": "a", "reasoning_content": "hm"},
                "logprobs": {"content": [{"token": "a", "logprob": -0.5}]}, "token_ids": [1]}])),
            chat_chunk(json!([{"index": 1, "delta": {"tool_calls": [
                {"index": 0, "function": {"arguments": "{\"x\""}}]}}])),
            chat_chunk(json!([{"index": 1, "delta": {"tool_calls": [
                {"index": 0, "function": {"arguments": ":1}"}},
                {"index": 1, "id": "call_2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
                "finish_reason": "tool_calls"}])),
            chat_chunk(json!([{"index": 0, "delta": {"content": "b"},
                "logprobs": {"content": [{"token": "b", "logprob": -1}]}, "token_ids": [2], "finish_reason": "length"}])),
            usage_chunk(),
        ],
    )
    .unwrap();
    assert_eq!(
        whole(&recording)["choices"],
        json!([
            {"index": 0, "message": {"role": "assistant", "content": "ab", "refusal": null, "reasoning_content": "hm"},
             "logprobs": {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1}]},
             "finish_reason": "length", "stop_reason": null, "token_ids": [1, 2]},
            {"index": 1, "message": {"role": "assistant", "content": null, "refusal": null, "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}},
                {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
             "logprobs": null, "finish_reason": "tool_calls", "stop_reason": null},
        ])
    );
}

#[test]
fn completions_are_put_together() {
    let chunk = |choice: Value| json!({"id": "p1", "object": "text_completion", "created": 7, "model": "m", "choices": [choice]});
    let recording = of_stream(
        Route::Completions,
        &[
            chunk(json!({"index": 0, "text": "a", "finish_reason": null,
                "logprobs": {"tokens": ["a"], "token_logprobs": [null], "top_logprobs": [null], "text_offset": [0]}})),
            chunk(json!({"index": 0, "text": "b", "finish_reason": "length",
                "logprobs": {"tokens": ["b"], "token_logprobs": [-1], "top_logprobs": [{"b": -1}], "text_offset": [1]}})),
            usage_chunk(),
        ],
    )
    .unwrap();
    assert_eq!(
        whole(&recording)["choices"],
        json!([{"index": 0, "text": "ab", "finish_reason": "length", "stop_reason": null,
            "logprobs": {"tokens": ["a", "b"], "token_logprobs": [null, -1],
                         "top_logprobs": [null, {"b": -1}], "text_offset": [0, 1]}}])
    );
}

fn chat_answer(choices: Value) -> Value {
    json!({"id": "c1", "object": "chat.completion", "created": 7, "model": "m", "choices": choices,
           "usage": {"prompt_tokens": 5, "total_tokens": 7, "completion_tokens": 2},
           "service_tier": null, "system_fingerprint": "fp", "prompt_logprobs": null, "kv_transfer_params": null})
}

#[test]
fn an_answer_in_one_piece_is_given_again_as_events() {
    let message = json!({"role": "assistant", "content": "hi \"you\"", "refusal": null, "annotations": null,
        "audio": null, "function_call": null, "tool_calls": [], "reasoning_content": null});
    let calls = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
    let answer = chat_answer(json!([
        {"index": 0, "message": message, "logprobs": {"content": []}, "finish_reason": "stop", "stop_reason": 7},
        {"index": 1, "message": calls, "logprobs": null, "finish_reason": "tool_calls", "stop_reason": null},
    ]));
    let recording = Recording::of_json(Route::Chat, answer.to_string().as_bytes()).unwrap();
    let mut wanted = answer;
    wanted["usage"] = cached_usage();
    assert_eq!(whole(&recording), wanted);

    let wants = Wants {
        stream: true,
        include_usage: true,
    };
    let body = recording.body(wants).unwrap();
    let events = events(std::str::from_utf8(&body).unwrap());
    let choices: Vec<Value> = events[..events.len() - 1]
        .iter()
        .map(|event| serde_json::from_slice::<Value>(event.data()).unwrap()["choices"].clone())
        .collect();
    assert_eq!(
        choices,
        [
            json!([{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null}]),
            json!([{"index": 0, "delta": {"content": "hi \"you\""}, "logprobs": {"content": []}, "finish_reason": null}]),
            json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": "stop", "stop_reason": 7}]),
            json!([{"index": 1, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null}]),
            json!([{"index": 1, "delta": {"tool_calls": [{"index": 0, "id": "x", "type": "function",
                "function": {"name": "f", "arguments": "{}"}}]}, "logprobs": null, "finish_reason": null}]),
            json!([{"index": 1, "delta": {}, "logprobs": null, "finish_reason": "tool_calls"}]),
            json!([]),
        ]
    );
    assert_eq!(events.last().unwrap().kind, EventKind::Done);
}

#[test]
fn answers_that_did_not_end_well_are_not_kept() {
    let end =
        |reason: Value| chat_chunk(json!([{"index": 0, "delta": {}, "finish_reason": reason}]));
    let half = chat_chunk(json!([{"index": 1, "delta": {"content": "x"}}]));
    let of = |chunks: &[Value]| of_stream(Route::Chat, chunks).map(|_| ());
    assert_eq!(of(&[end(json!("stop")), usage_chunk()]), Ok(()));
    assert_eq!(of(&[end(json!("length")), usage_chunk()]), Ok(()));
    assert_eq!(
        of(&[end(json!("content_filter")), usage_chunk()]),
        Err(Unfit::Filtered)
    );
    assert_eq!(
        of(&[end(json!("abort")), usage_chunk()]),
        Err(Unfit::Filtered)
    );
    assert_eq!(
        of(&[end(Value::Null), usage_chunk()]),
        Err(Unfit::Incomplete)
    );
    assert_eq!(
        of(&[end(json!("stop")), half, usage_chunk()]),
        Err(Unfit::Incomplete)
    );
    assert_eq!(of(&[end(json!("stop"))]), Err(Unfit::NoUsage));
    assert_eq!(of(&[usage_chunk()]), Err(Unfit::Incomplete));
    assert_eq!(of(&[]), Err(Unfit::Incomplete));
    let broken = json!({"error": {"message": "gone"}});
    assert_eq!(
        of(&[end(json!("stop")), usage_chunk(), broken]),
        Err(Unfit::Incomplete)
    );
    let cut = stream(&[end(json!("stop")), usage_chunk()]).replace("data: [DONE]\n\n", "");
    assert_eq!(
        Recording::of_events(Route::Chat, &events(&cut)),
        Err(Unfit::Incomplete)
    );

    let choice = |reason: Value| {
        let message = json!({"role": "assistant", "content": "x"});
        chat_answer(json!([{"index": 0, "message": message, "finish_reason": reason}]))
    };
    let of =
        |answer: &Value| Recording::of_json(Route::Chat, answer.to_string().as_bytes()).map(|_| ());
    assert_eq!(of(&choice(json!("stop"))), Ok(()));
    assert_eq!(of(&choice(json!("content_filter"))), Err(Unfit::Filtered));
    assert_eq!(of(&choice(Value::Null)), Err(Unfit::Incomplete));
    assert_eq!(of(&chat_answer(json!([]))), Err(Unfit::Unreadable));
    assert_eq!(of(&json!({"error": {}})), Err(Unfit::Unreadable));
    let mut bare = choice(json!("stop"));
    bare["usage"] = Value::Null;
    assert_eq!(of(&bare), Err(Unfit::NoUsage));
}

#[test]
fn a_form_that_would_be_guessed_is_left_out() {
    let odd = chat_chunk(
        json!([{"index": 0, "delta": {"content": "x", "new": 1}, "finish_reason": "stop"}]),
    );
    let recording = of_stream(Route::Chat, &[odd, usage_chunk()]).unwrap();
    assert!(recording.json.is_none() && recording.body(Wants::default()).is_none());
    assert!(recording.events.is_some());

    let mut odd = chat_answer(
        json!([{"index": 0, "message": {"content": "x", "new": 1}, "finish_reason": "stop"}]),
    );
    let recording = Recording::of_json(Route::Chat, odd.to_string().as_bytes()).unwrap();
    assert!(recording.json.is_some() && recording.events.is_none());
    // What vLLM cannot stream is not streamed from the cache either.
    odd["choices"] = json!([{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]);
    odd["prompt_logprobs"] = json!([null]);
    let recording = Recording::of_json(Route::Chat, odd.to_string().as_bytes()).unwrap();
    assert!(recording.events.is_none());
}

proptest! {
    /// Whichever way an answer was recorded first, both ways of giving it say the same.
    #[test]
    fn both_forms_say_the_same(
        texts in proptest::collection::vec("[a-zé\"\\\\\n😀]{0,4}", 1..8),
        n in 1u32..3,
    ) {
        let mut chunks = Vec::new();
        for index in 0..n {
            for text in &texts {
                chunks.push(chat_chunk(json!([{"index": index, "delta": {"role": "assistant", "content": text}}])));
            }
            chunks.push(chat_chunk(json!([{"index": index, "delta": {}, "finish_reason": "stop"}])));
        }
        chunks.push(usage_chunk());
        let streamed = of_stream(Route::Chat, &chunks).unwrap();
        let json = streamed.json.clone().unwrap();
        let again = Recording::of_json(Route::Chat, &json).unwrap();
        let body = again.body(Wants { stream: true, include_usage: true }).unwrap();
        let third = Recording::of_events(Route::Chat, &events(std::str::from_utf8(&body).unwrap())).unwrap();
        prop_assert_eq!(whole(&third), whole(&streamed));
        prop_assert_eq!(&whole(&streamed)["choices"][0]["message"]["content"], &json!(texts.concat()));
    }

    #[test]
    fn arbitrary_answers_never_panic(text in ".{0,80}") {
        let _ = Recording::of_json(Route::Chat, text.as_bytes());
        let _ = Recording::of_events(Route::Chat, &events(&text));
    }
}
