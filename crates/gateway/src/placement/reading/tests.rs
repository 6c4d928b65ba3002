use super::*;
use crate::ModelCodec;
use crate::worker::JsonChat;
use bytes::Bytes;
use model::{ChatTemplate, Tokenizer};
use proptest::prelude::*;
use routing::Priority;
use routing::keys::TokenChain;
use serde_json::{Value, json};
use testkit::tiny_models::{CHAT_TEMPLATE, TinyModel};
use tokio::time::Instant;

const SEED: KeySeed = KeySeed(5);
const BLOCK: usize = 16;

/// Drops the thoughts of all answers but the last, and opens an answer with an empty one: what templates
/// of reasoning models do, and what makes old messages read differently once others follow.
const THINKING: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n\
    {% if m.reasoning_content and loop.last %}<think>{{ m.reasoning_content }}</think>{% endif %}\
    {{ m.content }}<|im_end|>\n{% endfor %}\
    {% if tools %}{{ tools | tojson }}{% endif %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n<|endoftext|>\n{% endif %}";

fn codec(template: Option<&str>) -> Arc<dyn Codec> {
    let folder = tempfile::tempdir().unwrap();
    TinyModel::default().write_folder(folder.path()).unwrap();
    let file = std::fs::read(folder.path().join("tokenizer.json")).unwrap();
    let tokenizer = Tokenizer::from_json("tokenizer.json", &file).unwrap();
    let template = ChatTemplate::new(template.unwrap_or(CHAT_TEMPLATE), "", "").unwrap();
    Arc::new(ModelCodec::new(Arc::new(tokenizer), Some(template)))
}

fn reader(codec: Option<&Arc<dyn Codec>>) -> Reader {
    Reader::new(codec.cloned(), SEED, BLOCK, 1 << 20)
}

fn ask(body: &Value) -> Ask {
    let body = Bytes::from(serde_json::to_vec(body).unwrap());
    let survey = protocol::survey::Survey::read(&body).unwrap();
    let prompt = if survey.has("messages") {
        PromptSpans::chat(&survey, &body)
    } else {
        PromptSpans::completion(&survey, &body)
    };
    Ask {
        tenant: Arc::from("t"),
        salt: Arc::from("salt"),
        lora: None,
        body,
        prompt,
        max_tokens: None,
        answers: 1,
        priority: Priority::Normal,
        session: None,
        deadline: Instant::now(),
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(work)
}

fn read(reader: &Reader, ask: &Ask) -> (Arc<Prompt>, How) {
    block_on(reader.read(ask))
}

#[test]
fn a_repeat_is_recalled_and_a_grown_chat_tokenised_from_where_it_is_new() {
    let codec = codec(None);
    let reader = reader(Some(&codec));
    let mut messages = vec![json!({"role": "system", "content": "be brief"})];
    let mut expected = How::Whole;
    for turn in 0..5 {
        messages.push(json!({"role": "user", "content": format!("Hello world {turn}")}));
        // Fields that do not decide the prompt do not matter.
        let body = json!({"messages": messages, "max_tokens": turn + 1});
        assert_eq!(read(&reader, &ask(&body)).1, expected, "turn {turn}");
        let again = json!({"stream": true, "messages": messages});
        assert_eq!(read(&reader, &ask(&again)).1, How::Repeat);
        messages.push(json!({"role": "assistant", "content": "the answer"}));
        expected = How::Grown;
    }
}

#[test]
fn a_system_prompt_that_chats_share_is_tokenised_once() {
    let codec = codec(None);
    let reader = reader(Some(&codec));
    let chat = |question: &str| {
        let system = json!({"role": "system", "content": "Hello world ".repeat(50)});
        let turns =
            (0..9).map(|turn| json!({"role": "user", "content": format!("{question} {turn}")}));
        let messages: Vec<Value> = std::iter::once(system).chain(turns).collect();
        ask(&json!({ "messages": messages }))
    };
    assert_eq!(read(&reader, &chat("one")).1, How::Whole);
    assert_eq!(read(&reader, &chat("another")).1, How::Grown);
}

#[test]
fn tokens_are_those_of_the_rendered_prompt() {
    let codec = codec(None);
    let body = json!({"messages": [{"role": "user", "content": "Hello world, the model"}]});
    let (prompt, _) = read(&reader(Some(&codec)), &ask(&body));
    let rendered = "<|im_start|>user\nHello world, the model<|im_end|>\n<|im_start|>assistant\n";
    let tokens = codec.encode(rendered, false).unwrap();
    let mut chain = TokenChain::new(Root::new(SEED, "salt", None), BLOCK);
    chain.extend(&tokens);
    assert_eq!(prompt.tokens, tokens.len() as u64);
    assert_eq!(*prompt.keys, chain.keys());
}

#[test]
fn salt_adapter_tools_and_template_arguments_make_another_prompt() {
    let codec = codec(Some(THINKING));
    let reader = reader(Some(&codec));
    let text = "Hello world ".repeat(20);
    let plain = json!({"messages": [{"role": "user", "content": text}]});
    let tools = json!({"messages": [{"role": "user", "content": text}],
        "tools": [{"type": "function", "function": {"name": "f"}}]});
    let of = |ask: &Ask| read(&reader, ask).0.keys.clone();
    let first = of(&ask(&plain));
    let salted = of(&Ask {
        salt: Arc::from("other"),
        ..ask(&plain)
    });
    let adapted = of(&Ask {
        lora: Some(Arc::from("adapter")),
        ..ask(&plain)
    });
    assert_ne!(first.first(), salted.first());
    assert_ne!(first.first(), adapted.first());
    assert_ne!(first.last(), of(&ask(&tools)).last());
}

#[test]
fn completions_are_read_in_all_four_shapes() {
    let codec = codec(None);
    let reader = reader(Some(&codec));
    let text = "Hello world ".repeat(20);
    let tokens = codec.encode(&text, true).unwrap();
    let keys = |prompt: Value| {
        read(&reader, &ask(&json!({"prompt": prompt})))
            .0
            .keys
            .clone()
    };
    assert_eq!(keys(json!(text)), keys(json!(tokens)));
    assert_eq!(keys(json!(text)), keys(json!([text, "other"])));
    assert_eq!(keys(json!(text)), keys(json!([tokens, [1, 2]])));
    let both = read(&reader, &ask(&json!({"prompt": [tokens, [1, 2]]}))).0;
    assert_eq!(both.tokens, tokens.len() as u64 + 2);
}

#[test]
fn without_a_tokenizer_a_chat_that_goes_on_begins_with_the_same_blocks() {
    let reader = reader(None);
    let first = json!({"role": "user", "content": "x".repeat(500)});
    let body = json!({"messages": [first]});
    let grown = json!({"messages": [first, {"role": "assistant", "content": "y".repeat(200)}]});
    let (short, how) = read(&reader, &ask(&body));
    let (long, _) = read(&reader, &ask(&grown));
    assert_eq!(how, How::Text);
    assert!(long.keys.starts_with(&short.keys[..short.keys.len() - 1]));
    assert!(long.keys.len() > short.keys.len());
    assert_eq!(
        short.tokens.div_ceil(BLOCK as u64),
        short.keys.len() as u64 + 1
    );
}

#[test]
fn what_cannot_be_tokenised_is_read_as_text() {
    let codec = codec(None);
    let reader = reader(Some(&codec));
    let picture = json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]});
    assert_eq!(read(&reader, &ask(&picture)).1, How::Text);
    let odd = json!({"messages": 5});
    assert_eq!(read(&reader, &ask(&odd)).1, How::Text);
}

/// The tokens of a chat that is rendered and tokenised in one piece.
fn tokens_of(codec: &Arc<dyn Codec>, messages: &[Value]) -> Vec<u32> {
    let messages = chat::messages(messages.to_vec()).unwrap();
    let rendered = codec.render_json(&JsonChat {
        messages: &messages,
        tools: None,
        add_generation_prompt: true,
        continue_final_message: false,
        template_arguments: None,
    });
    codec.encode(&rendered.unwrap(), false).unwrap()
}

#[test]
fn a_long_document_is_neither_rendered_nor_tokenised_again() {
    let codec = codec(None);
    let reader = reader(Some(&codec));
    let document = json!({"role": "system", "content": format!("{}end", "Hello world, \"the model\"\n".repeat(400))});
    for turn in 0..3 {
        let messages = [
            document.clone(),
            json!({"role": "user", "content": format!("Hello {turn}")}),
        ];
        let (prompt, how) = read(&reader, &ask(&json!({"messages": messages})));
        assert_eq!(how, if turn == 0 { How::Whole } else { How::Grown });
        let mut chain = TokenChain::new(Root::new(SEED, "salt", None), BLOCK);
        chain.extend(&tokens_of(&codec, &messages));
        assert_eq!(*prompt.keys, chain.keys());
    }
}

fn any_content() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => Just(" the model".to_owned()),
        2 => Just("Hello world".to_owned()),
        2 => ".{0,12}",
        1 => Just("<|im_start|>".to_owned()),
        1 => Just("<|im_end|>\n".to_owned()),
        1 => Just("<|im_".to_owned()),
        1 => Just(" \n ".to_owned()),
        // Too long to go through a template.
        2 => Just(format!("{}end", "the model ".repeat(300))),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn any_message() -> impl Strategy<Value = Value> {
    let role = prop_oneof![Just("user"), Just("assistant"), Just("system")];
    (role, any_content(), proptest::option::of(any_content())).prop_map(
        |(role, content, thought)| match thought {
            Some(thought) if role == "assistant" => {
                json!({"role": role, "content": content, "reasoning_content": thought})
            }
            _ => json!({"role": role, "content": content}),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Chats grow, branch off and are edited in the middle, before a reader that remembers and one that
    /// does not.
    #[test]
    fn a_chat_that_grows_has_the_keys_it_has_from_scratch(
        turns in proptest::collection::vec((any_message(), 0usize..4), 1..12),
        thinking in any::<bool>(),
    ) {
        let codec = codec(thinking.then_some(THINKING));
        let remembering = reader(Some(&codec));
        let mut messages: Vec<Value> = Vec::new();
        for (message, cut) in turns {
            if cut == 0 {
                messages.truncate(messages.len() / 2);
            }
            messages.push(message);
            let ask = ask(&json!({"messages": messages}));
            let (remembered, how) = read(&remembering, &ask);
            let (fresh, _) = read(&reader(Some(&codec)), &ask);
            prop_assert_ne!(how, How::Text);
            let mut whole = TokenChain::new(Root::new(SEED, "salt", None), BLOCK);
            whole.extend(&tokens_of(&codec, &messages));
            prop_assert_eq!(&*fresh.keys, whole.keys());
            prop_assert_eq!(&remembered.keys, &fresh.keys);
            prop_assert_eq!(remembered.tokens, fresh.tokens);
            let (again, _) = read(&remembering, &ask);
            prop_assert_eq!(&again.keys, &fresh.keys);
        }
        prop_assert!(remembering.memory_bytes() <= 1 << 20);
    }
}
