//! A line for whoever watches, said from deep inside: that something waits, or begins anew.

use std::fmt;
use std::sync::Arc;

type Listener = dyn Fn(&str) + Send + Sync;

/// Where such lines go; nowhere by default. Clones say to the same place.
#[derive(Clone, Default)]
pub struct Notice(Option<Arc<Listener>>);

impl Notice {
    /// Lines go to `listener`, from whatever thread they are said.
    pub fn to(listener: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    /// Says a line.
    pub fn say(&self, line: &str) {
        if let Some(listener) = &self.0 {
            listener(line);
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
        let notice = Notice::to(move |line| list.lock().unwrap().push(line.to_owned()));
        notice.clone().say("a");
        notice.say("b");
        Notice::default().say("c");
        assert_eq!(*heard.lock().unwrap(), ["a", "b"]);
    }
}
