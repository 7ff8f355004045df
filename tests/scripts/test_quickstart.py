"""What scripts/quickstart.sh would do on machines that are not this one."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# What every system has, and all that the plan itself needs.
BASE = ["sh", "sed", "tr", "sort", "head", "id", "uname", "cat", "dirname", "grep", "awk", "env", "mktemp", "rm", "ls"]

DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nID=debian\n'
MINT = "ID=linuxmint\nID_LIKE=ubuntu\n"
FEDORA = 'NAME="Fedora Linux"\nID=fedora\n'
ROCKY = 'ID="rocky"\nID_LIKE="rhel centos fedora"\n'
ARCH = "ID=arch\n"
CACHY = "ID=cachyos\nID_LIKE=arch\n"
OTHER = "ID=plan9\n"


class Machine(unittest.TestCase):
    """A folder that stands for /, with a folder of programs that is the whole PATH."""

    def setUp(self):
        self.root = Path(tempfile.mkdtemp(prefix="q36-machine-"))
        self.addCleanup(shutil.rmtree, self.root)
        self.bin = self.root / "bin"
        self.bin.mkdir()
        for name in BASE:
            (self.bin / name).symlink_to(shutil.which(name))
        self.gpus = ""

    def program(self, name, body="exit 0"):
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def file(self, path, text=""):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def run_script(self, *args, system=DEBIAN, code=0, cwd="/"):
        self.file("os-release", system)
        env = {
            "PATH": str(self.bin),
            "HOME": str(self.root),
            "CI": "true",
            "Q36_OS_RELEASE": str(self.root / "os-release"),
            "Q36_SYSTEM_ROOT": str(self.root),
            "Q36_GPU_VENDORS": self.gpus,
        }
        command = [str(ROOT / "scripts/quickstart.sh"), *args]
        done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def plan(self, system=DEBIAN, *args):
        return self.run_script("--print-plan", *args, system=system)

    def installs(self, system, *args):
        lines = [line for line in self.plan(system, *args).splitlines() if line.startswith("installs:")]
        return lines[0].removeprefix("installs: ") if lines else ""


class Plan(Machine):
    def test_families_are_recognised_by_id_and_by_likeness(self):
        cases = {DEBIAN: "debian", MINT: "debian", FEDORA: "fedora", ROCKY: "fedora", ARCH: "arch", CACHY: "arch", OTHER: "unknown"}
        for system, family in cases.items():
            self.assertRegex(self.plan(system), f"family: +{family}\n")

    def test_a_bare_debian_gets_everything(self):
        wanted = "apt-get install -y --no-install-recommends cmake g++ gcc git libc6-dev libvulkan1 mesa-vulkan-drivers ninja-build python3"
        self.assertEqual(self.installs(DEBIAN), wanted)

    def test_a_bare_fedora_gets_everything(self):
        wanted = "dnf install -y cmake gcc gcc-c++ git mesa-vulkan-drivers ninja-build python3 vulkan-loader"
        self.assertEqual(self.installs(FEDORA), wanted)

    def test_a_bare_arch_gets_everything(self):
        wanted = "pacman -S --needed --noconfirm cmake gcc git ninja python vulkan-icd-loader vulkan-swrast"
        self.assertEqual(self.installs(ARCH), wanted)

    def test_the_driver_on_arch_follows_the_gpu(self):
        for vendor, package in {"0x1002": "vulkan-radeon", "0x8086": "vulkan-intel", "0x10de": "vulkan-nouveau"}.items():
            self.gpus = vendor
            self.assertIn(package, self.installs(ARCH).split())
        self.file("proc/driver/nvidia/version")
        self.assertIn("nvidia-utils", self.installs(ARCH).split())

    def test_a_build_without_vulkan_needs_a_linker_only(self):
        self.assertEqual(self.installs(FEDORA, "--cpu"), "dnf install -y gcc")
        self.program("gcc")
        out = self.plan(FEDORA, "--cpu")
        self.assertRegex(out, "missing: +nothing")
        self.assertRegex(out, "builds: .*--no-default-features\n")

    def test_only_what_is_missing_is_installed(self):
        for name in ["cc", "c++", "cmake", "ninja", "python3"]:
            self.program(name)
        self.file("usr/lib64/libvulkan.so.1")
        self.assertEqual(self.installs(FEDORA), "dnf install -y git mesa-vulkan-drivers")
        self.file("usr/share/vulkan/icd.d/nvidia_icd.json")
        self.assertEqual(self.installs(FEDORA), "dnf install -y git")

    def test_the_plan_tells_the_version_of_rust(self):
        self.assertRegex(self.plan(), "rust: +none, needs 1")
        self.program("cargo", "echo 'cargo 1.99.1 (abc 2030-01-01)'")
        self.assertRegex(self.plan(), "rust: +1.99.1, needs 1")

    def test_the_plan_changes_nothing(self):
        self.program("apt-get", f"touch {self.root}/touched")
        self.plan()
        self.assertFalse((self.root / "touched").exists())


class Install(Machine):
    """Runs with programs that note what they were called with instead of doing it."""

    def setUp(self):
        super().setUp()
        self.log = self.root / "log"
        for name in ["apt-get", "dnf", "pacman"]:
            self.program(name, f'echo "{name} $*" >> {self.log}')

    def test_an_installation_that_brings_nothing_is_an_error_that_names_step_and_remedy(self):
        out = self.run_script("--cpu", code=1)
        self.assertIn("error: packages: still missing after the installation: cc", out)
        self.assertIn("hint: ", out)
        self.assertIn("apt-get install -y --no-install-recommends gcc libc6-dev", self.log.read_text())

    def test_what_is_installed_is_told_before(self):
        out = self.run_script("--cpu", code=1)
        self.assertIn("missing:  cc", out)
        self.assertIn("installs: gcc libc6-dev", out)

    def test_without_root_sudo_is_used(self):
        self.program("id", "echo 1000")
        self.program("sudo", f'echo "sudo $*" >> {self.log}')
        self.run_script("--cpu", code=1)
        self.assertIn("sudo apt-get install", self.log.read_text())

    def test_without_root_and_sudo_the_command_for_an_administrator_is_told(self):
        self.program("id", "echo 1000")
        out = self.run_script("--cpu", code=1)
        self.assertIn("ask an administrator to run: apt-get install", out)
        self.assertFalse(self.log.exists())

    def test_an_unknown_distribution_names_what_is_missing(self):
        out = self.run_script("--cpu", system=OTHER, code=1)
        self.assertIn("install by hand: cc", out)

    def test_an_old_rust_without_rustup_and_network_is_an_error_with_a_remedy(self):
        self.program("cc")
        self.program("cargo", "echo 'cargo 1.80.0 (abc 2024-01-01)'")
        self.program("curl", "exit 6")
        out = self.run_script("--cpu", code=1)
        self.assertIn("found: 1.80.0", out)
        self.assertIn("https://rustup.rs", out)

    def test_a_build_that_fails_names_its_step(self):
        self.program("cc")
        self.program("cargo", "case $1 in --version) echo 'cargo 1.99.0 (abc)' ;; *) exit 101 ;; esac")
        self.assertIn("error: build: cargo failed", self.run_script("--cpu", code=1))

    def test_bad_usage_ends_with_status_2(self):
        self.assertIn("usage", self.run_script("--nope", code=2))
        self.assertIn("usage", self.run_script("--help"))


class Versions(unittest.TestCase):
    def at_least(self, have, want):
        script = f'. "$0"; at_least "{have}" "{want}"'
        return subprocess.run(["sh", "-c", script, str(ROOT / "scripts/platform.sh")]).returncode == 0

    def test_versions_compare_by_number(self):
        for have, want in [("1.95.0", "1.95"), ("1.100.0", "1.95"), ("2.0.0", "1.95"), ("1.95", "1.95")]:
            self.assertTrue(self.at_least(have, want), (have, want))
        for have, want in [("1.94.9", "1.95"), ("1.9.0", "1.95"), ("", "1.95"), ("0.99.0", "1.95")]:
            self.assertFalse(self.at_least(have, want), (have, want))


if __name__ == "__main__":
    unittest.main()
