//! The names of models, learnt from those who serve them.

use std::time::Duration;

use fleet::WorkerSpec;
use fleet::scrape::Getter;
use serde::Deserialize;

/// How long a worker may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// For a connection.
const CONNECT_WITHIN: Duration = Duration::from_millis(500);

/// The largest list read: thousands of adapters.
const MAX_LIST_BYTES: usize = 4 << 20;

/// What a worker serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Learnt {
    /// The names of its model.
    pub(crate) names: Vec<String>,
    /// Adapters on top of it.
    pub(crate) adapters: Vec<String>,
    /// Most tokens of prompt and answer together.
    pub(crate) max_model_len: Option<usize>,
}

/// `/v1/models`, as vLLM writes it: an adapter has a parent.
#[derive(Deserialize)]
struct List {
    data: Vec<Card>,
}

#[derive(Deserialize)]
struct Card {
    id: String,
    #[serde(default)]
    parent: Option<String>,
    #[serde(default)]
    max_model_len: Option<usize>,
}

impl From<List> for Learnt {
    fn from(list: List) -> Self {
        let mut learnt = Self::default();
        for card in list.data {
            if card.parent.is_some() {
                learnt.adapters.push(card.id);
            } else {
                learnt.names.push(card.id);
                learnt.max_model_len = learnt.max_model_len.or(card.max_model_len);
            }
        }
        learnt
    }
}

/// Asks one worker what it serves.
pub(crate) async fn ask_for_models(worker: &WorkerSpec) -> Result<Learnt, String> {
    let uri = worker
        .url
        .join("/v1/models")
        .ok_or("its address cannot be used")?;
    let getter = Getter::new(CONNECT_WITHIN, false, worker.api_key.clone());
    let page = getter
        .get(uri, ANSWER_WITHIN, MAX_LIST_BYTES)
        .await
        .map_err(|error| error.to_string())?;
    if page.status != 200 {
        return Err(format!("/v1/models answers {}", page.status));
    }
    let list: List = serde_json::from_slice(&page.body)
        .map_err(|error| format!("/v1/models is not a list of models: {error}"))?;
    Ok(list.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_are_told_from_models() {
        let list: List = serde_json::from_str(
            r#"{"object": "list", "data": [
                {"id": "base", "object": "model", "root": "org/base", "parent": null, "max_model_len": 4096},
                {"id": "sql", "object": "model", "root": "/loras/sql", "parent": "base"}]}"#,
        )
        .unwrap();
        let learnt = Learnt::from(list);
        assert_eq!(learnt.names, ["base"]);
        assert_eq!(learnt.adapters, ["sql"]);
        assert_eq!(learnt.max_model_len, Some(4096));
    }
}
