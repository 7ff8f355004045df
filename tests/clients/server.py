"""q36 serve with the demo model, for the client tests."""

import os
import re
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Q36 = str(Path(os.environ.get("Q36_BIN", ROOT / "target/release/q36")).resolve())
MODEL = "qwen3.6-35b-a3b"


def demo(context):
    """Flags of the demo model on the processor, which gives the same answers everywhere, with a context of so many
    tokens."""
    return ("-m", str(ROOT / "models/q36-tiny.gguf"), "--cpu", "-c", str(context))


DEMO = demo(4096)

# What ends a reply of the demo model, forbidden.
ENDS = {"4063": -100, "4065": -100}
FUNCTIONS = {
    "list": ("List one directory.", {"path": "The directory"}, ["path"]),
    "bash": ("Run a command in the shell and return its output.", {"command": "The command to run"}, ["command"]),
    "read": ("Read a text file or a range of lines.", {"path": "Path of the file"}, ["path"]),
}
QUESTION = "What is the port in config.json?"
CONFIG = '{\n  "port": 8123,\n  "host": "localhost",\n  "debug": false\n}'


def schema(name):
    """Description and JSON schema of one of the functions that the demo model knows."""
    description, properties, required = FUNCTIONS[name]
    properties = {key: {"type": "string", "description": text} for key, text in properties.items()}
    return description, {"type": "object", "properties": properties, "required": required}


def memory_mib(pid, name):
    """`VmRSS` or `VmHWM` of a process; `None` where the system has no such file."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith(name + ":")), None)


def free_port():
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def rest(folder):
    """Waits until no file is being written to a folder of saved sessions."""
    quiet, end = 0, time.monotonic() + 60
    while quiet < 5 and time.monotonic() < end:
        quiet = 0 if any(".tmp" in name for name in os.listdir(folder)) else quiet + 1
        time.sleep(0.02)


class Server:
    """A running server; `url` is where, `log` what it says. `model` are the flags that name one, `patience` the seconds
    that it may take to load, `variables` more of its environment."""

    def __init__(self, *flags, model=DEMO, patience=120, variables=None):
        self.home = tempfile.TemporaryDirectory(prefix="q36-clients-")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("Q36_", "XDG_"))}
        environment |= {"HOME": self.home.name, "NO_COLOR": "1", **(variables or {})}
        # It runs in a folder of its own, where names of files from here mean nothing.
        flags = [str(Path(flag).resolve()) if Path(flag).is_file() else flag for flag in flags]
        command = [Q36, "serve", *model, *([] if "--port" in flags else ["--port", "0"]), *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=self.home.name)
        self.log, self.is_ready = [], threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.is_ready.wait(patience) or self.process.poll() is not None:
            raise RuntimeError("the server did not start:\n" + "".join(self.log))

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r"listening on http://([\d.]+):(\d+)", line):
                self.host, self.port = found[1], int(found[2])
                self.url = f"http://{self.host}:{self.port}"
            if "state: ready" in line:
                self.is_ready.set()
        self.is_ready.set()

    def kill(self):
        """Ends it without a word."""
        self.process.kill()
        self._end()

    def stop(self):
        """Asks it to end, and returns its exit status."""
        self.process.terminate()
        return self._end()

    def _end(self):
        status = self.process.wait(60)
        self.reader.join(10)
        self.process.stderr.close()
        self.home.cleanup()
        return status
