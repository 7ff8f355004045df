"""The server against a description of its endpoints: whatever is sent, answers have the shapes that are described."""

import importlib.util
import os
import subprocess
import sys
import unittest
from pathlib import Path

from server import Server, demo

DESCRIPTION = Path(__file__).with_name("openapi.json")
# For how long requests are made up; 1200 is the long test.
SECONDS = os.environ.get("Q36_TEST_SCHEMA_SECONDS", "40")
# Left out: whether wrong requests are refused (unknown members are ignored, as clients want it), and whether right ones
# are taken (a conversation in which nobody asks anything has the right shape).
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "response_headers_conformance,unsupported_method,use_after_free"
)


@unittest.skipIf(importlib.util.find_spec("schemathesis") is None, "the package schemathesis is not installed")
class Schema(unittest.TestCase):
    def test_answers_are_as_described_whatever_is_sent(self):
        server = Server("-n", "16", "--batched-session", "2", model=demo(512))
        try:
            command = [sys.executable, "-m", "schemathesis.cli", "run", str(DESCRIPTION), "--url", server.url]
            command += ["--checks", CHECKS, "--phases", "examples,fuzzing,stateful", "--max-time", SECONDS]
            # An answer that does not come is a failure.
            command += ["--request-timeout", "60", "--seed", "36", "--continue-on-failure", "--no-color"]
            command += ["--suppress-health-check", "all", "--warnings", "off"]
            run = subprocess.run(command, cwd=server.home.name, capture_output=True, text=True, timeout=int(SECONDS) + 300)
            self.assertEqual(run.returncode, 0, run.stdout[-20_000:] + run.stderr[-2000:])
            # The server is still well.
            self.assertIsNone(server.process.poll(), server.log[-5:])
        finally:
            status = server.stop()
        self.assertEqual(status, 0, server.log[-5:])
        self.assertFalse([line for line in server.log if "panic" in line])


if __name__ == "__main__":
    unittest.main()
