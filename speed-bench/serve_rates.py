#!/usr/bin/env python3
"""What a server makes of a device: tokens a second of 1, 2, 4 and 8 replies at once, the same reply from `q36 run`, and how
long a short request waits beside a long prompt.

    speed-bench/serve_rates.py -- -m MODEL.gguf --vulkan
    speed-bench/serve_rates.py --sessions 2 --repeat 5 --json rates.json -- -m MODEL.gguf --vulkan

A rate comes from the difference between long and short replies, so that neither the prompt nor what a client does with the
first piece counts. Replies are greedy and may not end early, as a model with random weights never does; with one that does
so, try another `--prompt`. Each figure is the median of `--repeat` measurements, with the least and the most. Everything
behind `--` goes to the server and to `q36 run`. Needs no package.
"""

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/clients"))
from server import Q36, Server  # noqa: E402

# Tokens of a short reply: the difference to it is measured.
SHORT = 32
# Longest that a request may take, in seconds.
LIMIT = 600


class Failed(Exception):
    """A measurement that would mean nothing."""


def complete(url, prompt, tokens):
    """Streams a continuation of so many tokens; the tokens of its prompt."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode())
    usage = {}
    with urllib.request.urlopen(request, timeout=LIMIT) as response:
        for line in response:
            if line.startswith(b"data: {") and b'"usage":{' in line:
                usage = json.loads(line[6:])["usage"]
    if usage.get("completion_tokens") != tokens:
        raise Failed(f"a reply ended behind {usage.get('completion_tokens')} of {tokens} tokens; take another --prompt")
    return usage["prompt_tokens"]


def together(jobs):
    """Seconds until all are done."""
    failures = []

    def guarded(job):
        try:
            job()
        except (OSError, Failed) as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return time.monotonic() - began


def stream_rate(url, count, options):
    """Tokens a second of so many replies at once."""

    def seconds(tokens):
        return together([lambda n=n: complete(url, f"{n}. {options.prompt}", tokens) for n in range(count)])

    short = seconds(SHORT)
    return count * options.tokens / (seconds(SHORT + options.tokens) - short)


def run_rate(options):
    """Tokens a second that `q36 run` tells of the same reply."""
    command = [Q36, "run", "--raw", "-q", "--json", "-p", f"0. {options.prompt}", "-n", str(options.tokens), "--temp", "0"]
    told = json.loads(subprocess.run([*command, *options.flags], check=True, capture_output=True, text=True).stdout)
    if told["usage"]["completion_tokens"] != options.tokens:
        raise Failed(f"q36 run ended behind {told['usage']['completion_tokens']} tokens; take another --prompt")
    return told["timings"]["decode_tps"]


def wait_beside(url, delay, options):
    """Seconds until a short request has its first token, sent so many seconds after a long prompt; and the seconds and
    tokens of that prompt."""
    words = " ".join(str((number * 7919 + round(1000 * delay)) % 100_000) for number in range(options.long // 6))
    told = {}

    def long():
        began = time.monotonic()
        told["tokens"] = complete(url, words, 1)
        told["seconds"] = time.monotonic() - began

    def short():
        time.sleep(delay)
        began = time.monotonic()
        complete(url, f"{delay} {options.prompt}", 1)
        told["wait"] = time.monotonic() - began

    together([long, short])
    return told


def spread(values, digits=1):
    """Median, least and most in words."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def measure(options, result):
    """Prints the figures, and puts them into `result`."""
    counts = [count for count in (1, 2, 4, 8) if count <= options.sessions]
    runs = [run_rate(options) for _ in range(options.repeat)]
    print(f"q36 run                       {spread(runs)} tokens/s")
    result["run"] = runs
    server = Server("--batched-session", str(options.sessions), *options.flags, model=(), patience=LIMIT)
    try:
        complete(server.url, options.prompt, SHORT)
        alone = None
        for count in counts:
            rates = [stream_rate(server.url, count, options) for _ in range(options.repeat)]
            alone = alone or statistics.median(rates)
            against = statistics.median(rates) / (alone if count > 1 else statistics.median(runs))
            print(f"{count} at once                     {spread(rates)} tokens/s, {against:.3f} of {'one' if count > 1 else 'q36 run'}")
            result[f"at_once_{count}"] = rates
        if options.sessions > 1 and options.long:
            first = wait_beside(server.url, 0.0, options)
            count = 3 * options.repeat
            told = [wait_beside(server.url, (index + 0.5) / count * first["seconds"], options) for index in range(count)]
            waits = [one["wait"] for one in told]
            long = statistics.median(one["seconds"] for one in told)
            print(f"first token of a short request {spread(waits, 3)} s beside a prompt of {first['tokens']} tokens ({long:.2f} s)")
            result["short_beside_long"], result["long_tokens"], result["long_seconds"] = waits, first["tokens"], long
    finally:
        server.stop()


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=8, metavar="N", help="resident sessions of the server (8)")
    parser.add_argument("--tokens", type=int, default=512, metavar="N", help="tokens that are measured of each reply (512)")
    parser.add_argument("--long", type=int, default=30_000, metavar="N", help="tokens of the long prompt, about; 0: none (30000)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="measurements of each figure (3)")
    parser.add_argument("--prompt", default="Once upon a time", help="what is continued")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("flags", nargs="*", metavar="-- FLAG", help="flags of q36 serve and q36 run")
    return parser.parse_args(arguments)


def main():
    options = parse(sys.argv[1:])
    result = {}
    try:
        measure(options, result)
    except (Failed, OSError, RuntimeError, subprocess.CalledProcessError) as failure:
        print(f"serve_rates: {failure}", file=sys.stderr)
        return 1
    finally:
        if options.json:
            options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
