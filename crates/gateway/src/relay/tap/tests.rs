use super::*;
use proptest::prelude::*;

const HELLO: &str = "data: {\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"He \\\"llo\\\" \"},\"finish_reason\":null}]}\n\n";
const LAST: &str =
    "data: {\"choices\":[{\"delta\":{\"content\":\"w\"},\"finish_reason\":\"stop\"}]}\n\n";
const COUNTED: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"total_tokens\":15,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\n";
const OVER: &str = "data: [DONE]\n\n";

fn passed(tap: &mut Tap, stream: &str, cuts: &[usize]) -> String {
    let mut out = Vec::new();
    let mut rest = stream.as_bytes();
    for &cut in cuts {
        let (now, later) = rest.split_at(cut.min(rest.len()));
        out.extend_from_slice(&tap.pass(Bytes::copy_from_slice(now)));
        rest = later;
    }
    out.extend_from_slice(&tap.pass(Bytes::copy_from_slice(rest)));
    out.extend_from_slice(&tap.end());
    String::from_utf8(out).unwrap()
}

#[test]
fn a_stream_is_heard_and_passed_on_as_it_is() {
    let mut tap = Tap::of_stream(false, Some(TextKey::Content));
    let stream = [HELLO, LAST, COUNTED, OVER].concat();
    assert_eq!(passed(&mut tap, &stream, &[]), stream);
    assert!(tap.finished() == 1 && tap.is_done() && tap.failure().is_none());
    assert_eq!(tap.said(), Some(br#"He \"llo\" w"#.as_slice()));
    assert_eq!(tap.tokens(), 2);
    let report = Report {
        prompt_tokens: Some(12),
        completion_tokens: Some(3),
        cached_tokens: Some(8),
    };
    assert_eq!(tap.report(), report);
}

#[test]
fn usage_that_only_we_asked_for_is_not_shown() {
    let mut tap = Tap::of_stream(true, None);
    let stream = [HELLO, LAST, COUNTED, OVER].concat();
    assert_eq!(passed(&mut tap, &stream, &[]), [HELLO, LAST, OVER].concat());
    assert_eq!(tap.report().cached_tokens, Some(8));
}

#[test]
fn half_an_event_is_held_back() {
    let mut tap = Tap::of_stream(false, None);
    let half = &HELLO[..40];
    assert_eq!(tap.pass(Bytes::from([HELLO, half].concat())), HELLO);
    assert_eq!(tap.pass(Bytes::from(HELLO[40..].to_owned())), HELLO);
}

#[test]
fn text_that_looks_like_a_key_is_text() {
    let tricky = r#"data: {"choices":[{"delta":{"content":"\"usage\":{\"prompt_tokens\":1},\"finish_reason\":\"x\",\"choices\":[] \\"},"finish_reason":null}]}"#;
    let tricky = format!("{tricky}\n\n");
    let mut tap = Tap::of_stream(true, Some(TextKey::Content));
    assert_eq!(passed(&mut tap, &tricky, &[]), tricky);
    assert_eq!(tap.report(), Report::default());
    assert_eq!(tap.finished(), 0);
    assert!(tap.said().unwrap().ends_with(br"[] \\"));
}

#[test]
fn an_error_event_is_noticed() {
    for (event, failure) in [
        (
            "data: {\"error\": {\"message\": \"gone\", \"code\": 500}}\n\n",
            Failure::OfWorker,
        ),
        (
            "data: {\"error\":{\"message\":\"bad\",\"code\":400}}\n\n",
            Failure::OfClient,
        ),
        (
            "data: {\"object\":\"error\",\"message\":\"gone\"}\n\n",
            Failure::OfWorker,
        ),
    ] {
        let mut tap = Tap::of_stream(false, None);
        assert_eq!(passed(&mut tap, event, &[]), event);
        assert_eq!(tap.failure(), Some(failure), "{event}");
    }
}

#[test]
fn tool_calls_and_thoughts_cannot_be_continued() {
    for delta in [
        r#"{"tool_calls":[{"index":0}]}"#,
        r#"{"reasoning_content":"hm"}"#,
    ] {
        let event = format!("data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n");
        let mut tap = Tap::of_stream(false, Some(TextKey::Content));
        passed(&mut tap, &event, &[]);
        assert_eq!(tap.said(), None, "{delta}");
    }
}

#[test]
fn a_continuation_says_hello_once_and_counts_what_was_said_before() {
    let opening = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    let mut tap = Tap::of_stream(false, Some(TextKey::Content));
    passed(&mut tap, &[opening, HELLO, HELLO].concat(), &[]);
    tap.pass(Bytes::from_static(b"data: {\"half"));
    tap.resume(4);
    let rest = [opening, LAST, COUNTED, OVER].concat();
    let seen = passed(&mut tap, &rest, &[]);
    assert!(seen.starts_with(LAST), "{seen}");
    // 12 + 3 tokens in all, of which the first worker had said 4, in two pieces.
    assert!(seen.contains("\"prompt_tokens\":8,\"completion_tokens\":7,\"total_tokens\":15"));
    assert!(seen.ends_with(OVER));
}

#[test]
fn the_usage_of_a_whole_answer_is_found_at_its_end() {
    let mut tap = Tap::of_whole();
    let answer = format!(
        "{{\"choices\":[{{\"text\":\"{}\"}}],\"usage\":{{\"prompt_tokens\":7,\"completion_tokens\":2}},\"x\":null}}",
        "y".repeat(3 * TAIL_BYTES)
    );
    assert_eq!(passed(&mut tap, &answer, &[5_000, 4_000]), answer);
    assert_eq!(tap.report().prompt_tokens, Some(7));
    assert_eq!(tap.report().cached_tokens, None);
}

proptest! {
    #[test]
    fn where_the_pieces_are_cut_does_not_matter(
        cuts in proptest::collection::vec(0_usize..120, 0..8),
        hide in any::<bool>(),
    ) {
        let stream = [HELLO, ": ping\r\n\r\n", LAST, COUNTED, OVER].concat();
        let mut whole = Tap::of_stream(hide, Some(TextKey::Content));
        let mut cut = Tap::of_stream(hide, Some(TextKey::Content));
        prop_assert_eq!(passed(&mut cut, &stream, &cuts), passed(&mut whole, &stream, &[]));
        prop_assert_eq!(cut.report(), whole.report());
        prop_assert_eq!(cut.said(), whole.said());
        prop_assert_eq!(cut.tokens(), whole.tokens());
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..64), 0..8)
    ) {
        let mut tap = Tap::of_stream(true, Some(TextKey::Text));
        for piece in pieces {
            tap.pass(piece.into());
        }
        tap.end();
    }
}
