//! Help topics: which group of flags, or which table, a name stands for.

use super::definition::heading;

/// A name after `--help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Topic {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) content: Content,
}

/// What a topic shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Flags under these headings.
    Headings(&'static [&'static str]),
    /// Every flag.
    All,
    /// Commands and keys of a conversation.
    Dialogue,
    /// Environment variables.
    Environment,
}

/// Flags that decide how the model runs; part of the default page.
pub(super) const RUNTIME: &[&str] =
    &[heading::MODEL, heading::CONTEXT, heading::STREAMING, heading::SPECULATION];

/// A subcommand's own flags that are a topic too; part of its default page.
pub(super) const BENCHMARK: &[&str] = &[heading::BENCHMARK];

/// What requests to `serve` may do; part of its default page.
pub(super) const API: &[&str] = &[heading::SERVER, heading::REQUESTS];

/// Saved sessions of `serve`; part of its default page.
pub(super) const KV_CACHE: &[&str] = &[heading::KV, heading::KV_CACHE];

/// Every topic, in the order help lists them.
pub(super) const TOPICS: [Topic; 11] = [
    Topic {
        name: "runtime",
        about: "model, backend, context, streaming, speculation",
        content: Content::Headings(RUNTIME),
    },
    Topic {
        name: "sampling",
        about: "temperature and the like, thinking",
        content: Content::Headings(&[heading::SAMPLING]),
    },
    Topic {
        name: "thinking",
        about: "budgets of thoughts, and what is kept of them",
        content: Content::Headings(&[heading::THINKING]),
    },
    Topic {
        name: "api",
        about: "addresses, keys, limits of requests, logs",
        content: Content::Headings(API),
    },
    Topic {
        name: "kv-cache",
        about: "saved sessions: where, how many, when",
        content: Content::Headings(KV_CACHE),
    },
    Topic {
        name: "steering",
        about: "direction files",
        content: Content::Headings(&[heading::STEERING]),
    },
    Topic {
        name: "commands",
        about: "commands and keys of a conversation",
        content: Content::Dialogue,
    },
    Topic {
        name: "diagnostics",
        about: "dumps, scores and checks instead of an answer",
        content: Content::Headings(&[heading::DIAGNOSTICS]),
    },
    Topic {
        name: "benchmark",
        about: "what is measured, how often, and what it is compared with",
        content: Content::Headings(BENCHMARK),
    },
    Topic { name: "env", about: "environment variables", content: Content::Environment },
    Topic { name: "all", about: "every flag", content: Content::All },
];

impl Topic {
    /// Whether `command` has something to show under this topic.
    pub(super) fn applies_to(&self, command: &clap::Command) -> bool {
        let has = |heading: &&str| {
            command.get_arguments().any(|arg| arg.get_help_heading() == Some(*heading))
        };
        match self.content {
            // One flag of another command's topic does not make it a topic of this one.
            Content::Headings(headings) if headings == KV_CACHE => headings.iter().all(has),
            Content::Headings(headings) => headings.iter().any(has),
            Content::Dialogue => command.get_name() == "run",
            Content::All | Content::Environment => true,
        }
    }
}
