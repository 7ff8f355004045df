//! Updates to frames, whatever the API. Every stream ends exactly once.

use super::chat::stream::ChatStream;
use super::completions::stream::CompletionsStream;
use super::frame::Frame;
use super::messages::stream::{self as messages, MessagesStream};
use super::responses::stream::ResponsesStream;
use super::shape::{Form, Shape};
use super::stamp::Stamp;
use crate::server::{Update, Waiting};

/// The state of one stream.
#[derive(Debug)]
pub struct Encoder {
    stream: Stream,
    over: bool,
}

#[derive(Debug)]
enum Stream {
    Chat(ChatStream),
    Completions(CompletionsStream),
    Responses(Box<ResponsesStream>),
    Messages(MessagesStream),
}

impl Encoder {
    /// A stream of an answer of this shape.
    pub fn new(shape: Shape, stamp: Stamp) -> Self {
        let stream = match shape.form.clone() {
            Form::Chat(form) => Stream::Chat(ChatStream::new(&shape, form, stamp)),
            Form::Completions(form) => {
                Stream::Completions(CompletionsStream::new(&shape, form, stamp))
            }
            Form::Responses(form) => {
                Stream::Responses(Box::new(ResponsesStream::new(shape, *form, stamp)))
            }
            Form::Messages => Stream::Messages(MessagesStream::new(&shape, stamp)),
        };
        Self { stream, over: false }
    }

    /// The frames for an update. After [`Update::End`] or [`Update::Failed`] there are no more.
    pub fn update(&mut self, update: &Update) -> Vec<Frame> {
        if self.over || is_empty(update) {
            return Vec::new();
        }
        self.over = matches!(update, Update::End(_) | Update::Failed(_));
        match &mut self.stream {
            Stream::Chat(stream) => stream.update(update),
            Stream::Completions(stream) => stream.update(update),
            Stream::Responses(stream) => stream.update(update),
            Stream::Messages(stream) => stream.update(update),
        }
    }

    /// What shows a client that the connection lives; `waiting` is what it waits for, where nothing has begun.
    pub fn keepalive(&mut self, waiting: Option<&Waiting>) -> Vec<Frame> {
        if self.over {
            return Vec::new();
        }
        match &mut self.stream {
            Stream::Chat(_) | Stream::Completions(_) => vec![Frame::Comment(comment(waiting))],
            // Its readers count events and pass over comments.
            Stream::Responses(stream) => stream.keepalive(),
            Stream::Messages(_) => vec![messages::ping()],
        }
    }
}

/// A piece of nothing is no news.
fn is_empty(update: &Update) -> bool {
    match update {
        Update::Reasoning(text) | Update::Text(text) | Update::CallArguments(text) => {
            text.is_empty()
        }
        Update::Waiting(_)
        | Update::Begin(_)
        | Update::Logprob(_)
        | Update::CallBegin { .. }
        | Update::CallEnd
        | Update::End(_)
        | Update::Failed(_) => false,
    }
}

fn comment(waiting: Option<&Waiting>) -> String {
    match waiting {
        Some(Waiting::Queued { position }) => format!("queued position={position}"),
        Some(Waiting::Loading) => "loading".to_owned(),
        Some(Waiting::Prefill { done, total }) => format!("prefill {done}/{total}"),
        None => "keepalive".to_owned(),
    }
}
