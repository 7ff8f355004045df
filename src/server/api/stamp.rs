//! What an answer is known by: its id, its time, and the ids of its parts.

use serde_json::{Map, Value, json};

use crate::server::Api;
use crate::util::{clock, hex, random};

/// The id and the time of an answer, the same in all of its parts.
#[derive(Debug, Clone)]
pub struct Stamp {
    /// `chatcmpl-…`, `cmpl-…`, `resp_…` or `msg_…`.
    pub id: String,
    /// Unix seconds.
    pub created: u64,
    clock: fn() -> u64,
}

impl Stamp {
    /// A stamp for an answer of `api`, with 128 bits of `random`, by a clock of Unix seconds.
    pub fn new(api: Api, random: [u8; 16], clock: fn() -> u64) -> Self {
        let prefix = match api {
            Api::Chat => "chatcmpl-",
            Api::Completions => "cmpl-",
            Api::Responses => "resp_",
            Api::Messages => "msg_",
        };
        Self { id: format!("{prefix}{}", hex::encode(&random)), created: clock(), clock }
    }

    /// A stamp with an unguessable id and the time of now.
    pub fn fresh(api: Api) -> Self {
        Self::new(api, random::unguessable(), clock::unix_seconds)
    }

    /// What every answer and chunk of chat and completions begins with.
    pub(super) fn envelope(&self, object: &str, model: &str, choices: Value) -> Map<String, Value> {
        let mut members = Map::new();
        members.insert("id".to_owned(), json!(self.id));
        members.insert("object".to_owned(), json!(object));
        members.insert("created".to_owned(), json!(self.created));
        members.insert("model".to_owned(), json!(model));
        members.insert("choices".to_owned(), choices);
        members
    }

    /// The time of now, never before [`Stamp::created`].
    pub(super) fn now(&self) -> u64 {
        (self.clock)().max(self.created)
    }

    /// The id of part `index` of the answer: the same whether it is streamed or not, and as unguessable as the answer's.
    pub(super) fn part(&self, prefix: &str, index: usize) -> String {
        let digest = hex::sha256(format!("{}/{index}", self.id).as_bytes());
        format!("{prefix}{}", &digest[..32])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_their_api_and_differ() {
        let stamp = Stamp::new(Api::Responses, [0xab; 16], || 7);
        assert_eq!((stamp.created, stamp.now()), (7, 7));
        assert_eq!(stamp.id, format!("resp_{}", "ab".repeat(16)));
        assert!(Stamp::fresh(Api::Chat).id.starts_with("chatcmpl-"));
        let fresh = || Stamp::fresh(Api::Messages).id;
        assert_ne!(fresh(), fresh());
        let part = stamp.part("fc_", 0);
        assert_eq!(part.len(), 3 + 32);
        assert_ne!(part[3..], stamp.part("rs_", 1)[3..]);
        assert_eq!(part, stamp.part("fc_", 0));
    }
}
