"""Runs a program at a terminal of its own and types when it has shown something.

usage: terminal.py STEPS COMMAND...

STEPS is a JSON list of objects, taken one after the other. "see" is what to wait for, behind what the step before waited
for; then "resize" ([columns, rows]), "type" (text) and "signal" (a number) are done, as far as given. What the program
shows goes to standard output, and its exit status is this one's.
"""

import fcntl
import json
import os
import pty
import struct
import sys
import termios

COLUMNS, ROWS = 100, 30


def resize(terminal, columns, rows):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def take(step, terminal, child):
    if "resize" in step:
        resize(terminal, *step["resize"])
    if "signal" in step:
        os.kill(child, step["signal"])
    rest = step.get("type", "").encode()
    while rest:
        rest = rest[os.write(terminal, rest):]


def main():
    steps, command = json.loads(sys.argv[1]), sys.argv[2:]
    child, terminal = pty.fork()
    if child == 0:
        # The size must be right before the program looks.
        resize(0, COLUMNS, ROWS)
        os.execvp(command[0], command)
    unseen = b""
    while True:
        try:
            shown = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            shown = b""
        if not shown:
            break
        sys.stdout.buffer.write(shown)
        sys.stdout.buffer.flush()
        unseen += shown
        while steps and steps[0]["see"].encode() in unseen:
            unseen = unseen.split(steps[0]["see"].encode(), 1)[1]
            take(steps.pop(0), terminal, child)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if steps:
        print(f"never shown: {steps[0]['see']!r}", file=sys.stderr)
    sys.exit(status if status >= 0 else 128 - status)


main()
