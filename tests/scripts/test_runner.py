"""scripts/test.sh in a project of its own, with a cargo that says what the test wants it to."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

CARGO = """#!/bin/sh
case "$1" in
--version) echo 'cargo 1.99.0 (abc)' && exit ;;
test) ;;
*) exit 0 ;;
esac
echo called >> "$PROJECT/called"
echo "test result: ok. 7 passed; $FAILS failed; 0 ignored; 0 measured; 0 filtered out"
echo "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out"
i=0
while [ "$i" -lt "$SKIPS" ]; do
    echo "skipped: some::test: needs a file" >> "$Q36_SKIP_LOG"
    i=$((i + 1))
done
[ "$FAILS" -eq 0 ]
"""


class Runner(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp(prefix="q36-runner-"))
        self.addCleanup(shutil.rmtree, self.root)
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        self.bin = self.root / "target" / "bin"  # not part of the project's files
        self.bin.mkdir(parents=True)
        for name, text in {"cargo": CARGO, "cargo-fmt": "#!/bin/sh\n", "cargo-clippy": "#!/bin/sh\n", "rustc": "#!/bin/sh\n"}.items():
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        self.file("Cargo.toml", 'rust-version = "1.95"\n')
        self.file("tests/skips.txt", "# comment\ncpu 2 0\n")

    def file(self, path, text):
        (self.root / path).parent.mkdir(exist_ok=True)
        (self.root / path).write_text(text)

    def run_script(self, *args, code=0, skips=2, fails=0, **env):
        env = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOME": str(self.root),
            "PROJECT": str(self.bin),
            "SKIPS": str(skips),
            "FAILS": str(fails),
            **env,
        }
        command = [str(self.root / "scripts/test.sh"), *args]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, cwd="/")
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def calls(self):
        return len((self.bin / "called").read_text().splitlines())

    def test_results_are_added_up_in_the_form_of_cargos_summary(self):
        out = self.run_script("cpu")
        self.assertRegex(out, r"\ntest result: ok\. 12 passed; 0 failed; 2 ignored; .* finished in \d+\.00s\n")
        self.assertIn("skipped: some::test: needs a file", out)

    def test_a_failed_test_fails_the_run_and_names_the_suite(self):
        out = self.run_script("cpu", fails=3, code=1)
        self.assertIn("failed suites: cpu", out)
        self.assertIn("test result: FAILED. 12 passed; 3 failed", out)

    def test_more_or_fewer_skips_than_expected_fail_the_run(self):
        for skips in [1, 3]:
            out = self.run_script("cpu", skips=skips, code=1)
            self.assertIn(f"{skips} skips, tests/skips.txt expects 2", out)
        self.run_script("cpu", skips=0, Q36_FIXTURES="/")
        self.run_script("cpu", "--force", skips=2, code=1, Q36_FIXTURES="/")

    def test_an_unchanged_tree_is_not_tested_again(self):
        self.run_script("cpu")
        self.assertIn("passed already", self.run_script("cpu"))
        self.assertEqual(self.calls(), 1)
        self.run_script("cpu", "--force")
        self.assertEqual(self.calls(), 2)
        self.file("src/lib.rs", "//! New.\n")
        self.run_script("cpu")
        self.assertEqual(self.calls(), 3)

    def test_a_failure_is_not_remembered_as_passed(self):
        self.run_script("cpu", fails=1, code=1)
        self.run_script("cpu")
        self.assertEqual(self.calls(), 2)

    def test_suites_are_listed_and_unknown_ones_refused(self):
        listed = [line.split()[0] for line in self.run_script("--list").splitlines()]
        self.assertIn("cpu", listed)
        self.assertIn("unknown suite", self.run_script("nope", code=2))
        for name in listed:
            self.assertIn(name, self.run_script("nope", code=2))


if __name__ == "__main__":
    unittest.main()
