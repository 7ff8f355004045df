//! Configuration files for clients, printed and never written (server.md 20).
//!
//! What a client needs to know is where the server is and how long its context is; a real key is referred to by the
//! variable that has it.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::api::MODEL;

/// A client that can be configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigClient {
    /// opencode.
    Opencode,
    /// Pi.
    Pi,
    /// Codex CLI.
    Codex,
    /// Claude Code.
    ClaudeCode,
}

/// What a client has to know about the server.
#[derive(Debug, Clone, Copy)]
pub struct Served<'a> {
    /// Where it listens, without a path: `http://127.0.0.1:8000`.
    pub url: &'a str,
    /// Positions of a session.
    pub ctx_tokens: usize,
    /// Whether it asks for a key.
    pub keyed: bool,
}

/// A configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The whole file.
    pub file: String,
    /// For people: where the file belongs, and how to start the client.
    pub notes: String,
}

/// What clients send where the server asks for no key.
const PLACEHOLDER: &str = "q36-local";
/// The variable that has the key where it does.
const KEY_VARIABLE: &str = "Q36_API_KEY";
/// "No limit of the client's": the server stops at the end of its context anyway.
const OUTPUT_TOKENS: usize = 384_000;
const NAME: &str = "Qwen 3.6 35B A3B (q36)";

/// The configuration of a client.
pub fn print_config(client: ConfigClient, served: &Served<'_>) -> Config {
    let mut config = match client {
        ConfigClient::Opencode => opencode(served),
        ConfigClient::Pi => pi(served),
        ConfigClient::Codex => codex(served),
        ConfigClient::ClaudeCode => claude_code(served),
    };
    if served.keyed {
        let note = format!("The server's key is read from {KEY_VARIABLE}: export it before.\n");
        config.notes.push_str(&note);
    }
    config
}

/// The key in a file whose format refers to variables as `reference` does.
fn key(served: &Served<'_>, reference: &str) -> String {
    if served.keyed { reference.replace("KEY", KEY_VARIABLE) } else { PLACEHOLDER.to_owned() }
}

fn pretty(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("a value can be written");
    text.push('\n');
    text
}

fn opencode(served: &Served<'_>) -> Config {
    let model = json!({
        "name": NAME,
        "limit": {"context": served.ctx_tokens, "output": OUTPUT_TOKENS},
    });
    let provider = json!({
        "name": "q36 (local)",
        "npm": "@ai-sdk/openai-compatible",
        "options": {
            "baseURL": format!("{}/v1", served.url),
            "apiKey": key(served, "{env:KEY}"),
        },
        "models": {MODEL: model},
    });
    let file = json!({
        "$schema": "https://opencode.ai/config.json",
        "provider": {"q36": provider},
        "agent": {
            "q36": {
                "description": "Qwen 3.6 35B A3B, served by q36 on this machine",
                "model": format!("q36/{MODEL}"),
                "temperature": 0,
            },
        },
    });
    Config {
        file: pretty(&file),
        notes: format!(
            "Belongs to ~/.config/opencode/opencode.json; merge it with what is there.\n\
             Start: opencode --model q36/{MODEL}\n"
        ),
    }
}

fn pi(served: &Served<'_>) -> Config {
    let model = json!({
        "id": MODEL,
        "name": NAME,
        "reasoning": true,
        // `off` is left out: Pi then sends that thinking is off. A null would take the level away.
        "thinkingLevelMap": {
            "minimal": "low",
            "low": "low",
            "medium": "medium",
            "high": "high",
            "xhigh": "xhigh",
        },
        "input": ["text"],
        "contextWindow": served.ctx_tokens,
        "maxTokens": OUTPUT_TOKENS,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    });
    let provider = json!({
        "name": "q36 (local)",
        "baseUrl": format!("{}/v1", served.url),
        "api": "openai-completions",
        "apiKey": key(served, "$KEY"),
        "compat": {
            "supportsStore": false,
            "supportsDeveloperRole": false,
            "supportsReasoningEffort": true,
            "supportsUsageInStreaming": true,
            "maxTokensField": "max_tokens",
            "supportsStrictMode": false,
            "thinkingFormat": "qwen",
            "requiresReasoningContentOnAssistantMessages": true,
        },
        "models": [model],
    });
    let settings = json!({"defaultProvider": "q36", "defaultModel": MODEL});
    Config {
        file: pretty(&json!({"providers": {"q36": provider}})),
        notes: format!(
            "Belongs to ~/.pi/agent/models.json; merge it with what is there.\n\
             To make it the default, settings.json beside it: {settings}\n\
             Start: pi --provider q36 --model {MODEL}\n"
        ),
    }
}

fn codex(served: &Served<'_>) -> Config {
    // A basic string of TOML may be written as JSON writes strings.
    let mut file = "[model_providers.q36]\n".to_owned();
    let mut set = |name: &str, value: Value| {
        writeln!(file, "{name} = {value}").expect("writing to a string cannot fail");
    };
    set("name", json!("q36 (local)"));
    set("base_url", json!(format!("{}/v1", served.url)));
    set("wire_api", json!("responses"));
    if served.keyed {
        set("env_key", json!(KEY_VARIABLE));
    }
    set("stream_idle_timeout_ms", json!(1_000_000));
    Config {
        file,
        notes: format!(
            "Belongs to ~/.codex/config.toml; add it to what is there.\n\
             Start: codex --model {MODEL} -c model_provider=q36 -c model_context_window={}\n",
            served.ctx_tokens
        ),
    }
}

fn claude_code(served: &Served<'_>) -> Config {
    let url = quoted(served.url);
    let token = if served.keyed {
        format!("${{{KEY_VARIABLE}:?is not set: export the key of the server}}")
    } else {
        format!("${{{KEY_VARIABLE}:-{PLACEHOLDER}}}")
    };
    let file = format!(
        r#"#!/bin/sh
# Claude Code on the q36 server of this machine; arguments are handed on.
set -eu

default_url={url}
model={MODEL}

# It would be preferred to the token below.
unset ANTHROPIC_API_KEY
export ANTHROPIC_BASE_URL="${{Q36_ANTHROPIC_BASE_URL:-$default_url}}"
export ANTHROPIC_AUTH_TOKEN="{token}"

export ANTHROPIC_MODEL="$model"
export ANTHROPIC_DEFAULT_OPUS_MODEL="$model"
export ANTHROPIC_DEFAULT_SONNET_MODEL="$model"
export ANTHROPIC_DEFAULT_HAIKU_MODEL="$model"
export CLAUDE_CODE_SUBAGENT_MODEL="$model"
export ANTHROPIC_CUSTOM_MODEL_OPTION="$model"
export ANTHROPIC_CUSTOM_MODEL_OPTION_NAME={name}
export ANTHROPIC_CUSTOM_MODEL_OPTION_DESCRIPTION={description}

# A long prompt takes minutes where a data centre takes seconds.
export CLAUDE_STREAM_IDLE_TIMEOUT_MS=600000
export CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK=1
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
# A line that changes with every request would make every prompt a new one.
export CLAUDE_CODE_ATTRIBUTION_HEADER=0

exec claude "$@"
"#,
        name = quoted(NAME),
        description = quoted(&format!("Local, {} tokens of context", served.ctx_tokens)),
    );
    Config {
        file,
        notes: "Belongs to ~/bin/claude-q36; make it executable: chmod +x ~/bin/claude-q36\n\
                Start: claude-q36\n"
            .to_owned(),
    }
}

/// One word of a shell, whatever is in it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Write as _;
    use std::process::{Command, Output, Stdio};

    use super::*;

    const CLIENTS: [ConfigClient; 4] =
        [ConfigClient::Opencode, ConfigClient::Pi, ConfigClient::Codex, ConfigClient::ClaudeCode];

    fn config(client: ConfigClient, keyed: bool) -> Config {
        let served = Served { url: "http://127.0.0.1:9000", ctx_tokens: 65_536, keyed };
        print_config(client, &served)
    }

    fn json_of(client: ConfigClient, keyed: bool) -> Value {
        serde_json::from_str(&config(client, keyed).file).unwrap()
    }

    #[test]
    fn opencode_and_pi_get_json() {
        let provider = &json_of(ConfigClient::Opencode, false)["provider"]["q36"];
        assert_eq!(provider["options"]["baseURL"], "http://127.0.0.1:9000/v1");
        assert_eq!(provider["options"]["apiKey"], "q36-local");
        assert_eq!(
            provider["models"][MODEL]["limit"],
            json!({"context": 65_536, "output": 384_000})
        );
        let keyed = json_of(ConfigClient::Opencode, true);
        assert_eq!(keyed["provider"]["q36"]["options"]["apiKey"], "{env:Q36_API_KEY}");

        let provider = &json_of(ConfigClient::Pi, false)["providers"]["q36"];
        assert_eq!(provider["baseUrl"], "http://127.0.0.1:9000/v1");
        assert_eq!(provider["models"][0]["contextWindow"], 65_536);
        assert_eq!(provider["models"][0]["id"], MODEL);
        let levels = provider["models"][0]["thinkingLevelMap"].as_object().unwrap();
        assert!(levels.values().all(Value::is_string), "no level is taken away: {levels:?}");
        assert_eq!(provider["apiKey"], "q36-local");
        assert_eq!(json_of(ConfigClient::Pi, true)["providers"]["q36"]["apiKey"], "$Q36_API_KEY");
        let notes = config(ConfigClient::Pi, false).notes;
        assert!(notes.contains(r#"{"defaultProvider":"q36","defaultModel":"qwen3.6-35b-a3b"}"#));
    }

    /// A table and its values: the part of TOML that is written here, whose values JSON shares.
    fn toml(text: &str) -> (String, BTreeMap<String, Value>) {
        let mut lines = text.lines();
        let table = lines.next().and_then(|l| l.strip_prefix('[')?.strip_suffix(']')).unwrap();
        let entry = |line: &str| {
            let (name, value) = line.split_once(" = ").unwrap();
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            (name.to_owned(), serde_json::from_str(value).unwrap())
        };
        (table.to_owned(), lines.map(entry).collect())
    }

    #[test]
    fn codex_gets_toml() {
        let (table, values) = toml(&config(ConfigClient::Codex, false).file);
        assert_eq!(table, "model_providers.q36");
        assert_eq!(values["base_url"], "http://127.0.0.1:9000/v1");
        assert_eq!(values["wire_api"], "responses");
        assert_eq!(values["stream_idle_timeout_ms"], 1_000_000);
        assert!(!values.contains_key("env_key"));
        let (_, values) = toml(&config(ConfigClient::Codex, true).file);
        assert_eq!(values["env_key"], "Q36_API_KEY");
    }

    /// Runs a script with a client that shows what it was given.
    fn run(script: &str, variables: &[(&str, &str)]) -> Output {
        let shown = script.replace(
            "exec claude \"$@\"",
            "echo \"$ANTHROPIC_BASE_URL $ANTHROPIC_AUTH_TOKEN $ANTHROPIC_MODEL ${ANTHROPIC_API_KEY-none} $1\"",
        );
        assert_ne!(shown, script);
        let mut command = Command::new("sh");
        command.args(["-s", "--", "a b"]).env_clear().env("ANTHROPIC_API_KEY", "secret");
        command.envs(variables.iter().copied());
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        child.stdin.take().unwrap().write_all(shown.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    #[test]
    fn claude_code_gets_a_script() {
        let plain = config(ConfigClient::ClaudeCode, false).file;
        let check = |variables: &[(&str, &str)], expected: &str| {
            let output = run(&plain, variables);
            assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{expected}\n"));
        };
        check(&[], &format!("http://127.0.0.1:9000 q36-local {MODEL} none a b"));
        check(
            &[("Q36_ANTHROPIC_BASE_URL", "http://b"), ("Q36_API_KEY", "k")],
            &format!("http://b k {MODEL} none a b"),
        );
        let keyed = config(ConfigClient::ClaudeCode, true).file;
        let output = run(&keyed, &[]);
        assert!(!output.status.success());
        assert!(String::from_utf8(output.stderr).unwrap().contains("export the key of the server"));
        assert!(run(&keyed, &[("Q36_API_KEY", "k")]).status.success());
    }

    #[test]
    fn odd_addresses_stay_one_word() {
        let served = Served { url: "http://[::1]:1/'$(x)\"", ctx_tokens: 1, keyed: false };
        let script = print_config(ConfigClient::ClaudeCode, &served).file;
        let output = String::from_utf8(run(&script, &[]).stdout).unwrap();
        assert!(output.starts_with("http://[::1]:1/'$(x)\" q36-local"), "{output}");
        let (_, values) = toml(&print_config(ConfigClient::Codex, &served).file);
        assert_eq!(values["base_url"], "http://[::1]:1/'$(x)\"/v1");
    }

    #[test]
    fn every_client_is_told_where_and_how() {
        for client in CLIENTS {
            let (plain, keyed) = (config(client, false), config(client, true));
            assert!(plain.notes.starts_with("Belongs to ~/") && plain.notes.contains("Start: "));
            assert!(keyed.notes.contains("Q36_API_KEY") && keyed.file.contains("Q36_API_KEY"));
            assert!(plain.file.ends_with('\n') && plain.notes.ends_with('\n'));
        }
    }
}
