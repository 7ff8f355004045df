//! Where the server listens: an address and a port, or a socket file.

use std::fmt;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// What to do when the address is taken.
const IN_USE: &str = "another server may be running; --port chooses another port, 0 a free one";

/// What `--host` and `--port` name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A name or a literal address, and a port.
    Tcp {
        /// Without brackets.
        host: String,
        /// 0 for any.
        port: u16,
    },
    /// A socket file.
    Unix(PathBuf),
}

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {error}{}", hint(.error))]
pub struct ListenError {
    address: String,
    #[source]
    error: io::Error,
}

fn hint(error: &io::Error) -> String {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others have no usual remedy")]
    match error.kind() {
        io::ErrorKind::AddrInUse => format!("\nhint: {IN_USE}"),
        io::ErrorKind::AddrNotAvailable => "\nhint: --host names an address of this machine".into(),
        io::ErrorKind::PermissionDenied => {
            "\nhint: ports below 1024 are for root; try --port 8000".into()
        }
        _ => String::new(),
    }
}

/// A bound address: clients can connect, and wait until somebody serves.
#[derive(Debug)]
pub struct Listener {
    pub(super) socket: Bound,
    /// As clients write it: `http://127.0.0.1:8000`, or `unix:/run/q36.sock`.
    url: String,
}

/// The socket.
#[derive(Debug)]
pub(super) enum Bound {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// A socket file, removed with the listener.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Address {
    /// Reads `--host`; brackets around an IPv6 address may be left out.
    pub fn new(host: &str, port: u16) -> Self {
        match host.strip_prefix("unix:") {
            Some(path) => Self::Unix(path.into()),
            None => Self::Tcp {
                host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
                port,
            },
        }
    }

    /// Whether only this machine can connect, as far as the text tells.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp { host, .. } => {
                let literal = host.parse::<std::net::IpAddr>();
                host == "localhost" || literal.is_ok_and(|ip| ip.is_loopback())
            }
        }
    }

    /// Binds it.
    ///
    /// # Errors
    /// When it is taken, not this machine's, or not allowed.
    pub fn bind(&self) -> Result<Listener, ListenError> {
        let bound = match self {
            Self::Tcp { host, port } => bind_tcp(host, *port),
            Self::Unix(path) => bind_unix(path),
        };
        bound.map_err(|error| ListenError { address: self.to_string(), error })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Listener {
    /// As clients write it.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// The first of the name's addresses that can be bound, IPv4 before IPv6: that is what clients are told.
fn bind_tcp(host: &str, port: u16) -> io::Result<Listener> {
    let mut addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let listener = TcpListener::bind(&*addresses)?;
    listener.set_nonblocking(true)?;
    let url = format!("http://{}", listener.local_addr()?);
    Ok(Listener { socket: Bound::Tcp(listener), url })
}

/// A file that nobody answers behind is a remnant and is replaced; any other file is not.
fn bind_unix(path: &Path) -> io::Result<Listener> {
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "there is a file that is no socket",
            ));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    let file = SocketFile(path.to_owned());
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(Listener { socket: Bound::Unix(listener, file), url: format!("unix:{}", path.display()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read() {
        let tcp = |host: &str| Address::Tcp { host: host.into(), port: 1 };
        assert_eq!(Address::new("[::1]", 1), tcp("::1"));
        assert_eq!(Address::new("::1", 1).to_string(), "[::1]:1");
        assert_eq!(Address::new("localhost", 1), tcp("localhost"));
        assert_eq!(Address::new("unix:/run/q", 1), Address::Unix("/run/q".into()));
        for (host, local) in [
            ("127.0.0.2", true),
            ("::1", true),
            ("localhost", true),
            ("unix:x", true),
            ("0.0.0.0", false),
            ("::", false),
            ("example.org", false),
        ] {
            assert_eq!(Address::new(host, 1).is_local(), local, "{host}");
        }
    }

    #[test]
    fn port_0_is_some_port_and_a_taken_one_is_an_error_with_a_next_step() {
        let first = Address::new("127.0.0.1", 0).bind().unwrap();
        let port: u16 = first.url().rsplit_once(':').unwrap().1.parse().unwrap();
        assert_ne!(port, 0);
        let error = Address::new("127.0.0.1", port).bind().unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot listen on 127.0.0.1:{port}: ")), "{error}");
        assert!(error.contains("\nhint: "), "{error}");
        assert!(Address::new("no such host", 1).bind().is_err());
    }

    #[test]
    fn a_socket_file_is_private_and_goes_away_and_remnants_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q36.sock");
        let address = Address::new(&format!("unix:{}", path.display()), 0);
        let listener = address.bind().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(address.bind().unwrap_err().to_string().contains("in use"));
        drop(listener);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a remnant");
        drop(address.bind().unwrap());
        fs::write(&path, "data").unwrap();
        assert!(address.bind().is_err());
        assert_eq!(fs::read(&path).unwrap(), b"data");
    }
}
