//! Whole connections over loopback: what the HTTP library does with them, and what this shell adds.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::scripted::{Scripted, times};
use crate::server::http::{Address, Config, Times, serve};

/// A server that listens.
struct Server {
    scripted: Scripted,
    address: String,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(config: Config) -> Self {
        Self::at(&Address::new("127.0.0.1", 0), config)
    }

    fn at(address: &Address, config: Config) -> Self {
        let scripted = Scripted::new(config);
        let listener = address.bind().unwrap();
        let address = listener.url().trim_start_matches("http://").to_owned();
        let (stop, stopped) = watch::channel(false);
        let app = scripted.app.clone();
        let thread = std::thread::spawn(move || {
            Runtime::new().unwrap().block_on(serve(listener, app, stopped)).unwrap();
        });
        Self { scripted, address, stop, thread: Some(thread) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Sends bytes and reads until the server closes.
    fn exchange(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(bytes.as_ref());
        read_all(&mut stream)
    }

    /// Stops, and waits until the last connection is closed.
    fn join(&mut self) {
        self.stop.send_replace(true);
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads until `wanted` has come.
fn read_until(stream: &mut TcpStream, wanted: &str) -> String {
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    while !text.contains(wanted) {
        let n = stream.read(&mut piece).expect("the server answers");
        assert_ne!(n, 0, "closed before {wanted:?}: {text}");
        text.push_str(&String::from_utf8_lossy(&piece[..n]));
    }
    text
}

fn config() -> Config {
    Config { times: times(), ..Config::default() }
}

fn chat(model: &str, stream: bool) -> String {
    format!(
        r#"{{"model":"{model}","stream":{stream},"messages":[{{"role":"user","content":"hi"}}]}}"#
    )
}

fn post(body: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn one_connection_serves_many_requests() {
    let server = Server::start(config());
    let mut stream = server.connect();
    for _ in 0..3 {
        stream.write_all(post(&chat("says", false)).as_bytes()).unwrap();
        assert!(read_until(&mut stream, "Hello world").starts_with("HTTP/1.1 200 OK\r\n"));
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        read_until(&mut stream, r#"{"status":"ok"}"#);
    }
}

#[test]
fn bodies_may_come_in_chunks_and_after_a_question() {
    let server = Server::start(config());
    let body = chat("says", false);
    let (a, b) = body.split_at(20);
    let chunked = format!("{:x}\r\n{a}\r\n{:x};x=y\r\n{b}\r\n0\r\n\r\n", a.len(), b.len());
    let head = "POST /v1/chat/completions?x=y HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    let answer = server.exchange(format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunked}"));
    assert!(answer.contains("200 OK") && answer.contains("Hello world"), "{answer}");

    let mut stream = server.connect();
    let asks = format!("{head}Content-Length: {}\r\nExpect: 100-continue\r\n\r\n", body.len());
    stream.write_all(asks.as_bytes()).unwrap();
    read_until(&mut stream, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).unwrap();
    assert!(read_all(&mut stream).contains("Hello world"));
}

#[test]
fn old_clients_get_old_answers() {
    let server = Server::start(config());
    for stream in [false, true] {
        let body = chat("says", stream);
        let head =
            format!("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
        let answer = server.exchange(head + &body);
        assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
        assert!(!answer.to_ascii_lowercase().contains("transfer-encoding"), "{answer}");
        assert!(answer.contains("Hello"), "{answer}");
    }
}

#[test]
fn what_is_no_http_is_refused_and_large_heads_are() {
    let server = Server::start(config());
    for (bytes, status) in [
        ("nonsense\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), "400"),
        (format!("GET / HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n", "a".repeat(70_000)), "431"),
        (format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(12_000)), "431"),
        (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n"
                .to_owned(),
            "400",
        ),
        (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n"
                .to_owned(),
            "413",
        ),
    ] {
        let answer = server.exchange(&bytes);
        let head = answer.lines().next().unwrap_or_default();
        assert!(head.contains(status), "{}: {answer}", &bytes[..bytes.len().min(60)]);
    }
}

#[test]
fn a_body_may_have_as_many_bytes_as_the_limit_and_not_one_more() {
    let server = Server::start(config());
    let limit = config().body_bytes;
    assert_eq!(limit, 64 << 20, "what is documented");
    // A member that nobody knows is read and left out.
    let padded = |bytes: usize| {
        let body = chat("says", false);
        let fill = bytes - body.len() - r#","x":"""#.len();
        let body = body.strip_suffix('}').unwrap();
        format!("{body},\"x\":\"{}\"}}", "a".repeat(fill))
    };
    let head = |framing: &str| {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{framing}\r\n\r\n"
        )
    };
    let taken = server.exchange(head(&format!("Content-Length: {limit}")) + &padded(limit));
    assert!(taken.starts_with("HTTP/1.1 200 ") && taken.contains("Hello world"), "{taken}");
    // Of what is announced as too large nothing is waited for.
    let announced = head(&format!("Content-Length: {}", limit + 1)) + &chat("says", false);
    // What is not announced is found to be too large at its last byte.
    let chunk = format!("{:x}\r\n{}\r\n0\r\n\r\n", limit + 1, padded(limit + 1));
    for request in [announced, head("Transfer-Encoding: chunked") + &chunk] {
        let refused = server.exchange(request);
        assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
        assert!(refused.contains("--max-body-mb"), "{refused}");
    }
}

#[test]
fn a_refused_body_may_still_be_on_its_way() {
    let server = Server::start(Config { body_bytes: 1000, ..config() });
    let answer = server.exchange(post(&" ".repeat(2_000_000)));
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("--max-body-mb"), "{answer}");
}

#[test]
fn requests_that_do_not_arrive_end_with_408() {
    let times = Times { read: Duration::from_millis(50), ..times() };
    let server = Server::start(Config { times, ..config() });
    let late_head = server.exchange("POST /v1/messages HTTP/1.1\r\nHos");
    assert!(late_head.starts_with("HTTP/1.1 408 "), "{late_head}");
    let late_body =
        server.exchange("POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{");
    assert!(late_body.starts_with("HTTP/1.1 408 "), "{late_body}");
    assert!(late_body.contains(r#""type":"error""#), "{late_body}");
    assert_eq!(server.exchange(""), "", "silence is no request");
}

#[test]
fn a_client_that_closes_its_side_has_left() {
    let server = Server::start(config());
    for (index, (stream, half)) in
        [(false, false), (false, true), (true, false), (true, true)].into_iter().enumerate()
    {
        let mut socket = server.connect();
        socket.write_all(post(&chat("waits", stream)).as_bytes()).unwrap();
        if stream {
            read_until(&mut socket, "200 OK");
        } else {
            while server.scripted.app.running.len() == 0 {
                std::thread::yield_now();
            }
        }
        if half {
            socket.shutdown(Shutdown::Write).unwrap();
        } else {
            drop(socket);
        }
        server.scripted.expect_abandoned(index + 1);
    }
}

#[test]
fn a_client_that_reads_slowly_is_not_taken_for_one_that_has_stopped() {
    let times = Times { stall: Duration::from_secs(1), ..times() };
    let server = Server::start(Config { times, ..config() });
    let mut slow = server.connect();
    slow.write_all(post(&chat("tells", true)).as_bytes()).unwrap();
    // More than everything between the two holds, for much longer than a client may take nothing.
    let (mut read, mut piece, began) = (0, [0; 16 << 10], Instant::now());
    while began.elapsed() < Duration::from_secs(4) {
        read += slow.read(&mut piece).unwrap();
        std::thread::sleep(Duration::from_millis(25));
    }
    let rest = read_until(&mut slow, "data: [DONE]\n\n");
    assert!(read + rest.len() > 4 << 20, "{} bytes", read + rest.len());
    assert_eq!(server.scripted.abandoned.load(Ordering::Relaxed), 0);
}

#[test]
fn a_client_that_stops_reading_is_dropped() {
    let times = Times { stall: Duration::from_millis(200), ..times() };
    let server = Server::start(Config { times, ..config() });
    let mut stopped = server.connect();
    stopped.write_all(post(&chat("talks", true)).as_bytes()).unwrap();
    server.scripted.expect_abandoned(1);
    drop(stopped);
}

#[test]
fn stopping_closes_idle_connections_and_finishes_answers() {
    let mut server = Server::start(config());
    let mut idle = server.connect();
    idle.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    read_until(&mut idle, r#"{"status":"ok"}"#);
    let fresh = server.connect();
    let mut busy = server.connect();
    busy.write_all(post(&chat("waits", true)).as_bytes()).unwrap();
    read_until(&mut busy, "200 OK");
    server.stop.send_replace(true);
    assert_eq!(read_all(&mut idle), "");
    drop(busy);
    server.join();
    assert!(TcpStream::connect(&server.address).is_err(), "still listening");
    drop(fresh);
}

#[test]
fn a_socket_file_works_like_a_port() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("q36.sock");
    let mut server = Server::at(&Address::new(&format!("unix:{}", path.display()), 0), config());
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with(r#"{"status":"ok"}"#), "{answer}");
    server.join();
    assert!(!path.exists());
}
