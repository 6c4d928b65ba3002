//! What is known of an answer, or of a chunk of one, whatever else it says.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::head::Head;

#[derive(Deserialize)]
pub(super) struct Outline<'a> {
    #[serde(borrow)]
    pub(super) id: Cow<'a, str>,
    pub(super) created: u64,
    #[serde(borrow)]
    pub(super) model: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) choices: Vec<End<'a>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) system_fingerprint: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) service_tier: Option<Cow<'a, str>>,
    /// Where the blocks of this very answer lie: of no use to the next who asks.
    #[serde(borrow)]
    pub(super) kv_transfer_params: Option<&'a RawValue>,
}

/// How a choice ends, if it does here.
#[derive(Deserialize)]
pub(super) struct End<'a> {
    pub(super) index: u32,
    #[serde(borrow)]
    pub(super) finish_reason: Option<Cow<'a, str>>,
}

impl Outline<'_> {
    pub(super) fn head(&self) -> Head {
        let text = |text: &Option<Cow<'_, str>>| text.as_deref().map(str::to_owned);
        Head {
            id: self.id.clone().into_owned(),
            object: "",
            created: self.created,
            model: self.model.clone().into_owned(),
            system_fingerprint: text(&self.system_fingerprint),
            service_tier: text(&self.service_tier),
        }
    }
}
