//! `--print-config`: what a client needs to know of a server with these flags. Opens and loads nothing.

use anyhow::Result;

use super::config;
use crate::cli::UsageError;
use crate::cli::serve::ServeArgs;
use crate::cli::values::Client;
use crate::commands::{Context, Exit};
use crate::engine::DEFAULT_CTX_TOKENS;
use crate::server::http::Address;
use crate::server::{ConfigClient, Served, print_config};
use crate::term::Class;

/// The file goes to stdout; where it belongs goes to stderr.
pub(super) fn print(args: &ServeArgs, client: Client, context: &Context) -> Result<Exit> {
    let url = url(&args.server.host, args.server.port)?;
    let served = Served {
        url: &url,
        ctx_tokens: args.engine.context.ctx.map_or(DEFAULT_CTX_TOKENS, |n| n as usize),
        keyed: !config::keys(args, &context.environment).is_empty(),
    };
    let client = match client {
        Client::Opencode => ConfigClient::Opencode,
        Client::Pi => ConfigClient::Pi,
        Client::Codex => ConfigClient::Codex,
        Client::ClaudeCode => ConfigClient::ClaudeCode,
    };
    let printed = print_config(client, &served);
    context.printer.data(printed.file.as_bytes())?;
    for line in printed.notes.lines() {
        context.printer.note(Class::Plain, line);
    }
    Ok(Exit::Success)
}

/// Where clients on this machine find the server.
fn url(host: &str, port: u16) -> Result<String, UsageError> {
    let usage = |text: &str| UsageError::new("serve", text);
    match Address::new(host, port) {
        Address::Unix(_) => Err(usage("--print-config: these clients cannot use a socket file")),
        Address::Tcp { port: 0, .. } => {
            Err(usage("--print-config needs the port: add --port with the one that was taken"))
        }
        // The address for all of them is none to connect to.
        Address::Tcp { host, port } if host == "0.0.0.0" || host == "::" => {
            Ok(format!("http://127.0.0.1:{port}"))
        }
        address @ Address::Tcp { .. } => Ok(format!("http://{address}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_an_address_they_can_connect_to() {
        for (host, expected) in [
            ("127.0.0.1", "http://127.0.0.1:8000"),
            ("0.0.0.0", "http://127.0.0.1:8000"),
            ("::", "http://127.0.0.1:8000"),
            ("::1", "http://[::1]:8000"),
            ("box.local", "http://box.local:8000"),
        ] {
            assert_eq!(url(host, 8000).unwrap(), expected);
        }
        assert!(url("127.0.0.1", 0).is_err());
        assert!(url("unix:/x", 8000).is_err());
    }
}
