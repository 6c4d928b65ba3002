//! Leaves the last message open, so that the model goes on with it.

use serde_json::Value as Json;

use crate::ModelError;

use super::content;

/// Cuts a rendered prompt right after the text of its last message: what the template wrote to close
/// the message would end the answer before it began. Templates often trim messages, so the text is
/// looked for without the spaces around it, and those after it are kept if they were written.
pub(super) fn reopen(prompt: &mut String, messages: &[Json]) -> Result<(), ModelError> {
    let content = messages.last().and_then(|message| message.get("content"));
    let text = content.map(content::text).transpose()?.flatten();
    let refuse = |why: &str| Err(ModelError::Conversation(why.to_owned()));
    let Some(text) = text else {
        return refuse("continue_final_message needs a last message with text");
    };
    let trimmed = text.trim();
    let Some(at) = prompt.rfind(trimmed) else {
        return refuse("continue_final_message is set, but the template changes the last message");
    };
    let rest = prompt.get(at..).unwrap_or_default();
    let with_spaces = text.trim_start();
    let kept = if rest.starts_with(with_spaces) {
        with_spaces
    } else {
        trimmed
    };
    prompt.truncate(at + kept.len());
    Ok(())
}
