//! The responses that can be continued by id (server.md 9.6).
//!
//! An entry holds the whole conversation up to its own output, so that none depends on another one being kept. Items are
//! shared between entries; sizes are counted as if they were not, which bounds what is held from above.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::super::shape::{Form, Shape};
use super::super::stamp::Stamp;
use super::item::{Entry, Item};
use super::response::{self, ResponsesForm, Thoughts};
use crate::chat::{Role, ToolCall};
use crate::server::Outcome;

/// Most bytes of kept conversations.
const STORE_MAX_BYTES: usize = 64 << 20;

/// The last responses, the least recently used out first. For many threads.
#[derive(Debug)]
pub struct ResponseStore {
    max: usize,
    max_bytes: usize,
    shelf: Mutex<Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    kept: HashMap<String, Kept>,
    bytes: usize,
    /// Counts uses.
    clock: u64,
}

#[derive(Debug)]
struct Kept {
    entries: Vec<Arc<Entry>>,
    /// The response object, as text.
    answer: String,
    bytes: usize,
    used: u64,
}

impl ResponseStore {
    /// A store for at most `max` responses, of 64 MiB together.
    pub fn new(max: usize) -> Self {
        Self::within(max, STORE_MAX_BYTES)
    }

    fn within(max: usize, max_bytes: usize) -> Self {
        Self { max, max_bytes, shelf: Mutex::default() }
    }

    /// Keeps a response that has ended, unless its request said not to. Answers of other APIs are passed over.
    pub fn remember(&self, shape: &Shape, stamp: &Stamp, outcome: &Outcome) {
        let Form::Responses(form) = &shape.form else { return };
        if !form.store || self.max == 0 {
            return;
        }
        let mut entries = form.history.clone();
        entries.extend(output(form, stamp, outcome));
        let answer = response::answer(shape, form, stamp, outcome).to_string();
        let bytes = answer.len() + entries.iter().map(|entry| entry.bytes()).sum::<usize>();
        if bytes > self.max_bytes {
            return;
        }
        let mut shelf = self.shelf();
        shelf.remove(&stamp.id);
        while shelf.kept.len() >= self.max || shelf.bytes + bytes > self.max_bytes {
            let oldest = shelf.kept.iter().min_by_key(|(_, kept)| kept.used);
            let Some(id) = oldest.map(|(id, _)| id.clone()) else { break };
            shelf.remove(&id);
        }
        let used = shelf.tick();
        shelf.bytes += bytes;
        shelf.kept.insert(stamp.id.clone(), Kept { entries, answer, bytes, used });
    }

    /// The response object of a kept response.
    pub fn get(&self, id: &str) -> Option<Value> {
        let answer = self.shelf().kept.get(id)?.answer.clone();
        serde_json::from_str(&answer).ok()
    }

    /// Forgets a response; false when it was not there.
    pub fn delete(&self, id: &str) -> bool {
        self.shelf().remove(id)
    }

    /// The conversation of a kept response, its output included.
    pub(crate) fn conversation(&self, id: &str) -> Option<Vec<Arc<Entry>>> {
        let mut shelf = self.shelf();
        let used = shelf.tick();
        let kept = shelf.kept.get_mut(id)?;
        kept.used = used;
        Some(kept.entries.clone())
    }

    /// The id and the conversation of the kept response that made a call.
    pub(crate) fn of_call(&self, call_id: &str) -> Option<(String, Vec<Arc<Entry>>)> {
        let shelf = self.shelf();
        // Later responses have the call in their history; the one that made it ends with it.
        let made = |kept: &Kept| {
            let calls = kept.entries.iter().rev().map_while(|entry| match &entry.item {
                Item::Call(call) => Some(call),
                Item::Message { .. } | Item::Reasoning(_) | Item::Output { .. } => None,
            });
            calls.into_iter().any(|call| call.id.as_deref() == Some(call_id))
        };
        let (id, kept) = shelf.kept.iter().find(|(_, kept)| made(kept))?;
        Some((id.clone(), kept.entries.clone()))
    }

    /// An item of any kept response.
    pub(crate) fn item(&self, id: &str) -> Option<Arc<Entry>> {
        let shelf = self.shelf();
        let mut entries = shelf.kept.values().flat_map(|kept| kept.entries.iter().rev());
        entries.find(|entry| entry.id.as_deref() == Some(id)).cloned()
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn remove(&mut self, id: &str) -> bool {
        let Some(kept) = self.kept.remove(id) else { return false };
        self.bytes -= kept.bytes;
        true
    }
}

/// The items of an outcome, under the ids that the answer gave them. A call that was cut off cannot be continued.
fn output(form: &ResponsesForm, stamp: &Stamp, outcome: &Outcome) -> Vec<Arc<Entry>> {
    let mut entries = Vec::new();
    let mut index = 0;
    let mut push = |prefix: Option<&str>, item: Item| {
        let id = prefix.map(|prefix| stamp.part(prefix, index));
        index += usize::from(id.is_some());
        entries.push(Arc::new(Entry { id, item }));
    };
    if !outcome.reasoning.is_empty() {
        let shown = form.thoughts != Thoughts::Hidden;
        let prefix = shown.then_some(response::REASONING_PREFIX);
        push(prefix, Item::Reasoning(outcome.reasoning.clone()));
    }
    if !outcome.text.is_empty() {
        let item = Item::Message { role: Role::Assistant, text: outcome.text.clone() };
        push(Some(response::MESSAGE_PREFIX), item);
    }
    for call in &outcome.calls {
        let (id, arguments) = (Some(call.id.clone()), call.arguments.clone());
        let item = Item::Call(ToolCall { id, name: call.name.clone(), arguments });
        push(Some(response::call_prefix(form, &call.name)), item);
    }
    entries
}
