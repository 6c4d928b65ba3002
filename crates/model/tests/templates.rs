//! Templates written for Python's Jinja render as transformers renders them.

use std::path::Path;
use std::time::SystemTime;

use forespeak_model::{ChatTemplate, Conversation};
use serde_json::Value;

#[test]
fn every_idiom_renders_as_in_transformers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/templates");
    let source = std::fs::read_to_string(folder.join("idioms.jinja")).unwrap();
    let cases = std::fs::read(folder.join("idioms.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_slice(&cases).unwrap();
    let template = ChatTemplate::new(&source, "<s>", "</s>").unwrap();
    for case in cases {
        let prompt = template.render(&Conversation {
            messages: case["messages"].as_array().unwrap(),
            tools: case["tools"].as_array().map(Vec::as_slice),
            add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
            arguments: case["arguments"].as_object(),
            now: SystemTime::UNIX_EPOCH,
        });
        assert_eq!(prompt.unwrap(), case["prompt"].as_str().unwrap());
    }
}
