//! Whatever a client sends as a request, reading and checking it ends in a value or a refusal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::chat::ChatRequest;
use protocol::completions::CompletionRequest;
use protocol::tokenize::{DetokenizeRequest, TokenizeRequest};

fuzz_target!(|bytes: &[u8]| {
    if let Err(error) = ChatRequest::parse(bytes).and_then(ChatRequest::validate) {
        assert_eq!(error.kind().status(), 400);
    }
    let _ = CompletionRequest::parse(bytes).and_then(CompletionRequest::validate);
    let _ = TokenizeRequest::parse(bytes).and_then(TokenizeRequest::validate);
    let _ = DetokenizeRequest::parse(bytes);
});
