"""download_model.sh against a hub on 127.0.0.1: what arrives, what is refused, what survives."""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from hub import Hub

ROOT = Path(__file__).resolve().parents[2]
BODY = random.Random(36).randbytes(300_000)
SHA = hashlib.sha256(BODY).hexdigest()
NAME = "main.gguf"
TOKEN = "hf_secretsecretsecret"


class Download(unittest.TestCase):
    """Each test has its own project folder (the script makes a link there), hub and manifest."""

    def setUp(self):
        self.root = Path(tempfile.mkdtemp(prefix="q36-download-"))
        self.addCleanup(shutil.rmtree, self.root)
        self.script = shutil.copy(ROOT / "download_model.sh", self.root)
        self.dir = self.root / "gguf"
        self.hub = self.new_hub()
        self.manifest()

    def new_hub(self):
        hub = Hub()
        hub.files[NAME] = hub.files["mtp.gguf"] = BODY
        self.addCleanup(hub.close)
        return hub

    def manifest(self, size=len(BODY), sha=SHA):
        lines = [f"q2-imatrix {NAME} {size} {sha} someone/model main", f"mtp mtp.gguf {size} {sha} someone/model main"]
        (self.root / "manifest").write_text("# comment\n\n" + "\n".join(lines) + "\n")

    def command(self, *args):
        return ["sh", self.script, "--manifest", str(self.root / "manifest"), *args]

    def environment(self, **changes):
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root),
            "HF_ENDPOINT": self.hub.address,
            "no_proxy": "127.0.0.1",
            "Q36_DOWNLOAD_TICK": "0.05",
            "Q36_DOWNLOAD_BACKOFF": "0",
            "Q36_DOWNLOAD_RETRIES": "3",
            **changes,
        }

    def run_script(self, *args, code=0, **env):
        done = subprocess.run(
            self.command(*args), env=self.environment(**env), capture_output=True, text=True, timeout=60, cwd="/"
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def put(self, name, data, **state):
        """A file in the download folder; with a state, what an earlier run noted about it."""
        self.dir.mkdir(exist_ok=True)
        (self.dir / name).write_bytes(data)
        if state:
            lines = ",\n".join(f'  "{k}": {v if isinstance(v, int) else chr(34) + v + chr(34)}' for k, v in state.items())
            (self.dir / f"{name}.json").write_text("{\n" + lines + "\n}\n")

    def put_part(self, data, validator="v1"):
        self.put(f"{NAME}.part", data, size=len(BODY), validator=validator, sha256=SHA)

    def assert_downloaded(self):
        self.assertEqual((self.dir / NAME).read_bytes(), BODY)
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), [NAME, f"{NAME}.ok"])

    def ranges(self):
        return [headers.get("Range") for _, headers in self.hub.requests]


class Whole(Download):
    def test_a_download_is_verified_renamed_and_linked(self):
        out = self.run_script("q2-imatrix")
        self.assert_downloaded()
        link = self.root / "q36moe.gguf"
        self.assertEqual(os.readlink(link), f"gguf/{NAME}")
        self.assertEqual(link.read_bytes(), BODY)
        self.assertIn("done", out)
        self.assertEqual(self.hub.requests[0][0], f"/someone/model/resolve/main/{NAME}")

    def test_the_second_run_only_says_so_and_asks_nobody(self):
        self.run_script("q2-imatrix")
        asked = len(self.hub.requests)
        self.assertIn("already downloaded", self.run_script("q2-imatrix"))
        self.assertEqual(len(self.hub.requests), asked)

    def test_the_draft_head_makes_no_link_and_says_how_to_use_it(self):
        out = self.run_script("mtp")
        self.assertIn("--mtp", out)
        self.assertFalse((self.root / "q36moe.gguf").is_symlink())

    def test_another_folder_gets_an_absolute_link(self):
        self.dir = self.root / "elsewhere"
        other = self.root / "project"
        other.mkdir()
        self.script = shutil.copy(self.script, other)
        self.run_script("--dir", str(self.dir), "q2-imatrix")
        self.assert_downloaded()
        self.assertEqual(os.readlink(other / "q36moe.gguf"), str(self.dir / NAME))

    def test_a_link_to_another_model_is_replaced(self):
        (self.root / "q36moe.gguf").symlink_to("gguf/other.gguf")
        self.run_script("q2-imatrix")
        self.assertEqual(os.readlink(self.root / "q36moe.gguf"), f"gguf/{NAME}")

    def test_a_file_in_the_place_of_the_link_is_refused_before_the_download(self):
        (self.root / "q36moe.gguf").write_text("mine")
        self.assertIn("in the way", self.run_script("q2-imatrix", code=1))
        self.assertEqual(self.hub.requests, [])
        self.assertEqual((self.root / "q36moe.gguf").read_text(), "mine")


class Continued(Download):
    def test_a_partial_file_is_continued(self):
        self.put_part(BODY[:100_000])
        self.assertIn("continuing", self.run_script("q2-imatrix"))
        self.assert_downloaded()
        self.assertEqual(self.ranges(), ["bytes=100000-100000", "bytes=100000-"])

    def test_a_changed_validator_starts_over(self):
        self.put_part(b"x" * 100_000, validator="v0")
        self.assertIn("has changed", self.run_script("q2-imatrix"))
        self.assert_downloaded()

    def test_a_partial_file_of_unknown_origin_starts_over(self):
        self.put(f"{NAME}.part", b"x" * 1000)
        self.run_script("q2-imatrix")
        self.assert_downloaded()

    def test_a_server_without_ranges_starts_over(self):
        self.hub.ranges = False
        self.put_part(BODY[:1000])
        self.assertIn("cannot continue", self.run_script("q2-imatrix"))
        self.assert_downloaded()

    def test_a_complete_partial_file_needs_no_network(self):
        self.put_part(BODY)
        self.run_script("q2-imatrix", HF_ENDPOINT="http://127.0.0.1:9")
        self.assert_downloaded()

    def test_status_416_on_a_complete_partial_file_goes_to_verification(self):
        self.put(f"{NAME}.part", BODY, validator="v1")
        self.run_script("q2-imatrix")
        self.assert_downloaded()
        self.assertEqual(self.ranges(), [f"bytes={len(BODY)}-{len(BODY)}"])

    def test_a_partial_file_that_is_too_long_starts_over(self):
        self.put(f"{NAME}.part", BODY + b"more", validator="v1")
        self.assertIn("longer", self.run_script("q2-imatrix"))
        self.assert_downloaded()

    def test_a_cut_connection_is_continued_in_the_same_run(self):
        self.hub.cuts = [100_000, 50_000]
        out = self.run_script("q2-imatrix")
        self.assert_downloaded()
        self.assertIn("continuing", out)
        self.assertIn("bytes=150000-", self.ranges())

    def test_a_stalled_connection_is_given_up_and_continued(self):
        self.hub.cuts, self.hub.stall = [100_000], True
        self.run_script("q2-imatrix", Q36_DOWNLOAD_STALL="1")
        self.assert_downloaded()

    def test_an_interrupt_keeps_the_partial_file_for_the_next_run(self):
        self.hub.cuts, self.hub.stall = [100_000], True
        running = subprocess.Popen(self.command("q2-imatrix"), env=self.environment(), stderr=subprocess.PIPE)
        self.addCleanup(running.kill)
        part = self.dir / f"{NAME}.part"
        limit = time.monotonic() + 20
        while not (part.exists() and part.stat().st_size > 0):  # curl writes in blocks
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        self.assertIn(b"continues", running.communicate(timeout=20)[1])
        self.assertEqual(running.returncode, 130)
        self.assertFalse((self.dir / f"{NAME}.lock").exists())
        self.assertIn("continuing", self.run_script("q2-imatrix"))
        self.assert_downloaded()


class Refused(Download):
    def test_a_wrong_hash_is_kept_aside_and_not_installed(self):
        self.hub.files[NAME] = BODY[:-1] + bytes([BODY[-1] ^ 1])
        self.assertIn("expected " + SHA, self.run_script("q2-imatrix", code=1))
        self.assertEqual([p.name for p in self.dir.iterdir()], [f"{NAME}.bad"])
        self.assertFalse((self.root / "q36moe.gguf").is_symlink())

    def test_a_size_unlike_the_manifest_is_refused_before_the_transfer(self):
        self.manifest(size=5)
        self.assertIn("the manifest says 5", self.run_script("q2-imatrix", code=1))
        self.manifest(size=f">{len(BODY)}")
        self.assertIn("the manifest says >", self.run_script("q2-imatrix", code=1))

    def test_the_hub_stating_another_hash_is_refused_before_the_transfer(self):
        self.hub.linked_headers = {"X-Linked-ETag": '"' + "0" * 64 + '"'}
        self.assertIn("the manifest says " + SHA, self.run_script("q2-imatrix", code=1))
        self.assertEqual(len(self.hub.requests), 1)

    def test_without_a_pinned_hash_the_one_stated_by_the_hub_counts(self):
        self.manifest(size=f">{len(BODY) - 1}", sha="-")
        self.hub.linked_headers = {"X-Linked-ETag": f'"{SHA}"', "X-Repo-Commit": "abc"}
        self.run_script("q2-imatrix")
        self.assert_downloaded()
        self.hub.linked_headers = {"X-Linked-ETag": '"' + "0" * 64 + '"'}
        (self.dir / NAME).unlink()
        self.assertIn("expected 0000", self.run_script("q2-imatrix", code=1))

    def test_without_any_hash_the_size_is_checked_and_the_lack_is_told(self):
        self.manifest(size="-", sha="-")
        self.assertIn("only the size was checked", self.run_script("q2-imatrix"))
        self.assertEqual((self.dir / NAME).read_bytes(), BODY)

    def test_a_full_disk_is_told_before_the_transfer(self):
        bin_dir = self.root / "bin"
        bin_dir.mkdir()
        (bin_dir / "df").write_text("#!/bin/sh\necho header\necho fs 100 50 1048000 50% /\n")
        (bin_dir / "df").chmod(0o755)
        out = self.run_script("q2-imatrix", code=1, PATH=f"{bin_dir}:{os.environ['PATH']}")
        self.assertIn("not enough space", out)
        self.assertEqual(len(self.hub.requests), 1)

    def test_a_running_download_holds_the_lock_and_a_dead_one_does_not(self):
        lock = self.dir / f"{NAME}.lock"
        lock.mkdir(parents=True)
        (lock / "pid").write_text(f"{os.getpid()}\n")
        self.assertIn(f"pid {os.getpid()}", self.run_script("q2-imatrix", code=1))
        gone = subprocess.Popen(["true"])
        gone.wait()
        (lock / "pid").write_text(f"{gone.pid}\n")
        self.run_script("q2-imatrix")
        self.assert_downloaded()

    def test_a_file_that_aria2_works_on_is_left_alone(self):
        self.put(f"{NAME}.aria2", b"")
        self.assertIn("aria2", self.run_script("q2-imatrix", code=1))
        self.assertEqual(self.hub.requests, [])

    def test_bad_usage_ends_with_status_1(self):
        self.assertIn("unknown target", self.run_script("q9", code=1))
        self.assertIn("unknown option", self.run_script("--nope", code=1))
        self.assertIn("missing value", self.run_script("--dir", code=1))
        self.assertIn("usage", self.run_script(code=1))
        self.assertIn("usage", self.run_script("--help"))

    def test_a_manifest_cannot_name_files_outside_the_folder(self):
        (self.root / "manifest").write_text("q2-imatrix ../x.gguf - - a/b main\n")
        self.assertIn("bad file name", self.run_script("q2-imatrix", code=1))


class Answers(Download):
    def test_busy_hubs_are_asked_again(self):
        self.hub.failures = [503, 429, 500]
        self.assertIn("trying again", self.run_script("q2-imatrix"))
        self.assert_downloaded()

    def test_attempts_are_limited(self):
        self.hub.failures = [503] * 9
        self.assertIn("4 times in a row", self.run_script("q2-imatrix", code=1))

    def test_a_missing_file_is_told_at_once(self):
        self.hub.files.clear()
        self.assertIn("has no someone/model", self.run_script("q2-imatrix", code=1))
        self.assertEqual(len(self.hub.requests), 1)

    def test_a_denied_request_asks_for_a_token(self):
        self.hub.token = TOKEN
        self.assertIn("--token-file", self.run_script("q2-imatrix", code=1))

    def test_redirects_in_circles_end(self):
        self.hub.redirect_to = self.hub.address
        self.assertIn("circles", self.run_script("q2-imatrix", code=1))


class Tokens(Download):
    def check(self, *args, **env):
        self.hub.token = TOKEN
        out = self.run_script(*args, "q2-imatrix", **env)
        self.assert_downloaded()
        self.assertEqual(set(self.hub.tokens()), {f"Bearer {TOKEN}"})
        self.assertNotIn(TOKEN, out)

    def test_from_the_command_line(self):
        self.check("--token", TOKEN, HF_TOKEN="other")

    def test_from_a_file(self):
        (self.root / "token").write_text(TOKEN + "\n")
        self.check("--token-file", str(self.root / "token"), HF_TOKEN="other")

    def test_from_the_environment(self):
        self.check(HF_TOKEN=TOKEN)

    def test_from_the_file_of_the_hub_tools(self):
        cache = self.root / ".cache" / "huggingface"
        cache.mkdir(parents=True)
        (cache / "token").write_text(TOKEN)
        self.check()

    def test_a_redirect_to_a_storage_host_does_not_carry_it(self):
        storage = self.new_hub()
        self.hub.token, self.hub.redirect_to = TOKEN, storage.address
        self.run_script("q2-imatrix", HF_TOKEN=TOKEN)
        self.assert_downloaded()
        self.assertEqual(set(self.hub.tokens()), {f"Bearer {TOKEN}"})
        self.assertEqual(set(storage.tokens()), {None})

    def test_no_child_process_has_it_in_its_arguments(self):
        seen = self.root / "seen"
        bin_dir = self.root / "bin"
        bin_dir.mkdir()
        for tool in ("curl", "awk", "sed", "stat"):
            real = shutil.which(tool)
            (bin_dir / tool).write_text(f'#!/bin/sh\necho "$0 $*" >> {seen}\nexec {real} "$@"\n')
            (bin_dir / tool).chmod(0o755)
        self.check(HF_TOKEN=TOKEN, PATH=f"{bin_dir}:{os.environ['PATH']}")
        self.assertIn("curl", seen.read_text())
        self.assertNotIn(TOKEN, seen.read_text())

    def test_odd_characters_are_refused(self):
        self.assertIn("characters", self.run_script("q2-imatrix", code=1, HF_TOKEN='a"\nb'))


class Checks(Download):
    def test_list_tells_the_state_of_each_target(self):
        self.assertRegex(self.run_script("--list"), r"q2-imatrix +absent")
        self.put_part(BODY[:150_000])
        self.assertRegex(self.run_script("--list"), r"q2-imatrix +50 % there")
        self.run_script("q2-imatrix")
        out = self.run_script("--list")
        self.assertRegex(out, r"q2-imatrix +verified")
        self.assertIn(f"link:   gguf/{NAME}", out)

    def test_check_remembers_its_verdict_until_the_file_changes(self):
        self.run_script("q2-imatrix")
        self.assertNotIn("checking", self.run_script("--check"))
        self.assertIn("checking", self.run_script("--check", "--verify"))
        path = self.dir / NAME
        path.write_bytes(BODY[:-1] + b"?")
        os.utime(path, (1, 1))
        self.assertIn("expected " + SHA, self.run_script("--check", code=1))

    def test_check_of_a_named_target_that_is_absent_fails(self):
        self.assertIn("absent", self.run_script("--check"))
        self.assertIn("absent", self.run_script("--check", "mtp", code=1))

    def test_an_existing_bad_file_is_kept_aside(self):
        self.put(NAME, b"x" * len(BODY))
        self.assertIn("kept as", self.run_script("q2-imatrix", code=1))
        self.assertTrue((self.dir / f"{NAME}.bad").exists())
        self.run_script("q2-imatrix")

    def test_hash_prints_the_manifest_line(self):
        self.put(NAME, BODY)
        line = f"q2-imatrix {NAME} {len(BODY)} {SHA} someone/model main\n"
        self.assertEqual(self.run_script("--hash", str(self.dir / NAME)), line)
        (self.root / "other").write_bytes(b"")
        self.assertIn("- other 0 e3b0c44298fc", self.run_script("--hash", str(self.root / "other")))


if __name__ == "__main__":
    unittest.main()
