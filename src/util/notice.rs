//! A line for whoever watches, said from deep inside: that something takes long, waits, or begins anew.

use std::fmt;
use std::sync::Arc;

/// How a line is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Good to know.
    Remark,
    /// Something is not as it should be.
    Warning,
    /// Nothing can be done until the next [`Tone::Back`].
    Away,
    /// What was away works again.
    Back,
}

type Listener = dyn Fn(Tone, &str) + Send + Sync;

/// Where such lines go; nowhere by default. Clones say to the same place.
#[derive(Clone, Default)]
pub struct Notice(Option<Arc<Listener>>);

impl Notice {
    /// Lines go to `listener`, from whatever thread they are said.
    pub fn to(listener: impl Fn(Tone, &str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    /// Says what is good to know.
    pub fn remark(&self, line: &str) {
        self.say(Tone::Remark, line);
    }

    /// Says what is not as it should be.
    pub fn warn(&self, line: &str) {
        self.say(Tone::Warning, line);
    }

    /// Says that nothing can be done for a while, and why.
    pub fn away(&self, line: &str) {
        self.say(Tone::Away, line);
    }

    /// Says that this is over.
    pub fn back(&self, line: &str) {
        self.say(Tone::Back, line);
    }

    fn say(&self, tone: Tone, line: &str) {
        if let Some(listener) = &self.0 {
            listener(tone, line);
        }
    }
}

impl fmt::Debug for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Notice").field(&self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn clones_say_to_the_same_place() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&heard);
        let notice = Notice::to(move |tone, line| list.lock().unwrap().push((tone, line.len())));
        notice.clone().remark("a");
        notice.warn("bc");
        Notice::default().warn("def");
        assert_eq!(*heard.lock().unwrap(), [(Tone::Remark, 1), (Tone::Warning, 2)]);
    }
}
