#!/usr/bin/env python3
"""Drives the server's page in a headless browser, and takes pictures of it.

Not part of scripts/test.sh, since a browser is large. Needs `pip install playwright`, a Chromium (Debian: the package
chromium), a built q36, and nothing else:

    python3 scripts/page_test.py [--q36 target/release/q36] [--chromium /usr/bin/chromium] [--pictures FOLDER]
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
KEY = "page-key"


class Server:
    """q36 serve with the demo model on a free port."""

    def __init__(self, q36, *flags):
        command = [q36, "serve", "-m", str(ROOT / "models/q36-tiny.gguf"), "--cpu", "--port", "0", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"listening on (http://\S+)", line):
                self.url = found[1]
                break
        # Nobody else reads, and a full pipe would stop the server.
        self.log = tempfile.TemporaryFile("w+")
        self.pump = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=self.log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        self.pump.wait(30)


def say(page, text):
    page.get_by_role("textbox", name="Message").fill(text)
    page.keyboard.press("Enter")


def settled(page, count):
    """Waits until so many answers are complete."""
    expect(page.locator("article.assistant")).to_have_count(count, timeout=60_000)
    expect(page.get_by_role("button", name="Send")).to_be_visible(timeout=60_000)


def chats(page, picture):
    expect(page.locator("#model")).to_contain_text("Qwen", timeout=30_000)
    picture("empty")
    say(page, "What is the capital of France?")
    settled(page, 1)
    answer = page.locator("article.assistant").last
    expect(answer.locator("summary")).to_have_text("Reasoning")
    expect(answer.locator(".answer")).to_contain_text("Paris")
    assert not answer.locator("details").evaluate("node => node.open"), "reasoning is not folded"
    answer.locator("summary").click()
    expect(answer.locator(".thought")).not_to_be_empty()
    expect(page.locator("#tokens")).to_contain_text("of")
    expect(page.locator("#slots")).to_contain_text("sessions busy")
    picture("answer")
    page.get_by_label("Think first").uncheck()
    say(page, "And of Italy?")
    settled(page, 2)
    assert page.locator("article.assistant").last.locator("details").is_hidden()
    page.get_by_role("button", name="New chat").click()
    expect(page.locator("article")).to_have_count(0)


def keys(page):
    box = page.get_by_role("textbox", name="Message")
    box.fill("a")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("b")
    assert box.input_value() == "a\nb", box.input_value()
    box.fill("")
    page.keyboard.press("Enter")
    expect(page.locator("article")).to_have_count(0)


def stops(page):
    """The demo model ends soon, so the answer is one that never does."""
    page.evaluate(
        """() => { const plain = window.fetch; window.fetch = (path, init) => {
            if (!String(path).includes('chat/completions')) return plain(path, init);
            const encoder = new TextEncoder();
            const chunk = { choices: [{ index: 0, delta: { content: 'word ' }, finish_reason: null }] };
            let timer;
            const body = new ReadableStream({
                start(control) {
                    timer = setInterval(() => control.enqueue(encoder.encode('data: ' + JSON.stringify(chunk) + '\\n\\n')), 20);
                    init.signal.addEventListener('abort', () => { clearInterval(timer); control.error(init.signal.reason); });
                },
            });
            return Promise.resolve(new Response(body));
        }; }"""
    )
    say(page, "Never stop")
    expect(page.locator(".answer").last).to_contain_text("word word")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".note").last).to_contain_text("Stopped.")
    say(page, "Again")
    expect(page.locator("article.assistant").last.locator(".answer")).to_contain_text("word word")
    page.keyboard.press("Escape")
    expect(page.locator(".note").last).to_contain_text("Stopped.")
    expect(page.get_by_role("button", name="Send")).to_be_visible()


SAMPLE = """# Title
Some **bold**, *italic*, `a < b` and ~~old~~ [a link](https://example.org) [bad](javascript:alert(1))

- one
- two
  - inner
3. three

> quoted

| a | b |
|---|---|
| 1 | <b>2</b> |

```python
print("<script>alert(1)</script>")
```
<img src=x onerror=alert(1)>"""


def draws_markdown(page, picture):
    page.evaluate("text => { const answer = new Answer(); answer.add({ content: text, reasoning_content: 'why' }); answer.end(''); }", SAMPLE)
    body = page.locator(".answer").last
    for selector, text in {
        "h3": "Title", "strong": "bold", "em": "italic", "del": "old", "p code": "a < b", "a": "a link", "ul ul li": "inner",
        "blockquote": "quoted", "td >> nth=1": "<b>2</b>", "pre": "<script>alert(1)</script>", "ol li": "three",
    }.items():
        expect(body.locator(selector).first).to_contain_text(text)
    assert body.locator("img, script, b").count() == 0, "text of an answer became elements"
    assert body.locator("a").count() == 1, "only harmless addresses become links"
    picture("markdown")


def asks_for_a_key(page, picture):
    say(page, "Hello!")
    dialog = page.get_by_role("dialog", name="This server asks for a key")
    expect(dialog).to_be_visible()
    picture("key")
    page.get_by_label("Key", exact=True).fill("wrong")
    page.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    page.get_by_label("Key", exact=True).fill(KEY)
    page.keyboard.press("Enter")
    settled(page, 1)
    assert page.evaluate("sessionStorage.getItem('q36-key')") == KEY
    assert page.evaluate("localStorage.length") == 0


def names_are_there(page):
    """Every control has a name for those who do not see it."""
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, input, textarea, meter')].filter((node) =>
            !(node.labels?.length || node.textContent.trim() || node.getAttribute('aria-label'))).map((node) => node.outerHTML)"""
    )
    assert nameless == [], nameless


def run(options):
    pictures = options.pictures and Path(options.pictures)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
        for scheme, size in [("light", (1100, 800)), ("dark", (420, 800))]:
            context = browser.new_context(color_scheme=scheme, viewport={"width": size[0], "height": size[1]})
            page = context.new_page()
            problems = []
            page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: problems.append(str(error)))

            def picture(name, page=page, scheme=scheme):
                if pictures:
                    page.screenshot(path=str(pictures / f"{scheme}-{name}.png"))

            with Server(options.q36, "-c", "4096") as server:
                page.goto(server.url)
                names_are_there(page)
                keys(page)
                chats(page, picture)
                draws_markdown(page, picture)
                stops(page)
            assert problems == [], problems
            with Server(options.q36, "-c", "512", "--api-key", KEY) as server:
                page = context.new_page()
                page.goto(server.url)
                asks_for_a_key(page, lambda name, page=page, scheme=scheme: pictures and page.screenshot(path=str(pictures / f"{scheme}-{name}.png")))
                say(page, "word " * 600)
                expect(page.get_by_role("alert")).to_contain_text("no longer fits", timeout=30_000)
                page.get_by_role("button", name="New chat").click()
            say(page, "Hello?")
            expect(page.get_by_role("alert")).to_contain_text("cannot be reached", timeout=30_000)
            if pictures:
                page.screenshot(path=str(pictures / f"{scheme}-error.png"))
            context.close()
            print(f"{scheme}: ok")
        browser.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--q36", default=str(ROOT / "target/release/q36"))
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--pictures")
    run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
