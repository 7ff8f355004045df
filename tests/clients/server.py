"""q36 serve with the demo model, for the client tests."""

import os
import re
import subprocess
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Q36 = str(Path(os.environ.get("Q36_BIN", ROOT / "target/release/q36")).resolve())
MODEL = "qwen3.6-35b-a3b"

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


class Server:
    """A running server; `url` is where."""

    def __init__(self, *flags):
        self.home = tempfile.TemporaryDirectory(prefix="q36-clients-")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("Q36_", "XDG_"))}
        environment |= {"HOME": self.home.name, "NO_COLOR": "1"}
        command = [Q36, "serve", "-m", str(ROOT / "models/q36-tiny.gguf"), "--cpu", "--port", "0", "-c", "4096", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=self.home.name)
        self.log, self.is_ready = [], threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.is_ready.wait(120) or self.process.poll() is not None:
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
        self.process.wait(60)
        self._clean()

    def _clean(self):
        self.reader.join(10)
        self.process.stderr.close()
        self.home.cleanup()

    def stop(self):
        """Asks it to end, and returns its exit status."""
        self.process.terminate()
        status = self.process.wait(60)
        self._clean()
        return status
