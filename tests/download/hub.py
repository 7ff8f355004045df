"""A model hub on 127.0.0.1 with the habits, and on demand the faults, of real ones."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Serves the bytes that `Hub` describes and notes every request there."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        hub = self.server.hub
        hub.requests.append((self.path, dict(self.headers)))
        if hub.failures:
            self.answer(hub.failures.pop(0), {})
        elif hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            self.answer(401, {})
        elif hub.redirect_to:
            self.answer(302, {"Location": hub.redirect_to + self.path, **hub.linked_headers})
        elif self.path.rsplit("/", 1)[-1] not in hub.files:
            self.answer(404, {})
        else:
            self.send_file(hub, hub.files[self.path.rsplit("/", 1)[-1]])

    def send_file(self, hub, body):
        wanted = self.headers.get("Range") if hub.ranges else None
        if self.headers.get("If-Range") not in (None, hub.etag):
            wanted = None
        headers = {"ETag": hub.etag, **hub.linked_headers}
        if wanted is None:
            self.answer(200, headers, body)
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        first, last = int(first), min(int(last or len(body)), len(body) - 1)
        if first >= len(body):
            self.answer(416, {**headers, "Content-Range": f"bytes */{len(body)}"})
            return
        headers["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
        self.answer(206, headers, body[first : last + 1])

    def answer(self, status, headers, body=b""):
        hub = self.server.hub
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = hub.cuts.pop(0) if hub.cuts and len(body) > 1 else None
        try:
            self.wfile.write(body[:cut])
            if cut is not None and hub.stall:
                self.wfile.flush()
                hub.closed.wait(30)
        except (BrokenPipeError, ConnectionResetError):
            pass
        if cut is not None:
            self.close_connection = True


class Server(ThreadingHTTPServer):
    """A client that hangs up, as curl does when it has seen enough, is no event."""

    daemon_threads = True

    def handle_error(self, *_):
        pass


class Hub:
    """One server. The attributes may be changed between requests."""

    def __init__(self):
        self.files = {}  # name -> bytes
        self.etag = '"v1"'
        self.ranges = True
        self.token = None  # required where set
        self.redirect_to = None  # base address
        self.linked_headers = {}  # X-Linked-* and X-Repo-Commit
        self.failures = []  # statuses of the next answers
        self.cuts = []  # bytes after which the next bodies stop
        self.stall = False  # a cut body hangs instead of closing
        self.closed = threading.Event()
        self.requests = []  # (path, headers)
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.hub = self
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def tokens(self):
        """The Authorization headers of all requests so far."""
        return [headers.get("Authorization") for _, headers in self.requests]

    def close(self):
        self.closed.set()
        self.server.shutdown()
        self.server.server_close()
