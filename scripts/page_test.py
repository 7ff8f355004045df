#!/usr/bin/env python3
"""Drives the server's page in a headless browser, and takes pictures of it.

Not part of scripts/test.sh, since a browser is large. Needs `pip install playwright`, a Chromium (Debian: the package
chromium), a built q36, and nothing else:

    python3 scripts/page_test.py [--q36 target/release/q36] [--chromium /usr/bin/chromium] [--pictures FOLDER]
"""

import argparse
import http.server
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
KEY = "page-key"


class Server:
    """q36 serve with the demo model, on a free port unless one is given."""

    def __init__(self, q36, *flags, port=0):
        command = [q36, "serve", "-m", str(ROOT / "models/q36-tiny.gguf"), "--cpu", "--port", str(port), *flags]
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
    expect(page.locator("#sessions summary")).to_contain_text("of 2 sessions busy")
    picture("answer")
    page.get_by_label("Think first").uncheck()
    say(page, "And of Italy?")
    settled(page, 2)
    assert page.locator("article.assistant").last.locator("details").is_hidden()


def keys(page):
    box = page.get_by_role("textbox", name="Message")
    box.fill("a")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("b")
    assert box.input_value() == "a\nb", box.input_value()
    box.fill("")
    page.keyboard.press("Enter")
    expect(page.locator("article")).to_have_count(0)


def lists_sessions(page, picture):
    page.locator("#sessions summary").focus()
    page.keyboard.press("Enter")
    rows = page.locator("#sessions tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("free")
    box = page.locator("#sessions table").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= page.viewport_size["width"], box
    picture("sessions")
    page.keyboard.press("Escape")
    expect(rows.first).to_be_hidden()


def tabs(page):
    """From the text on, the keyboard reaches everything, and where it is can be seen."""
    page.get_by_role("textbox", name="Message").focus()
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            """() => { const at = document.activeElement; return [
                at.id || at.textContent.trim() || at.tagName, at === document.body || getComputedStyle(at).outlineStyle]; }"""
        )
        assert outline is True or outline != "none", f"{name} shows no focus"
        seen.append(name)
        if name == "text":
            break
    places = [next((n for n, name in enumerate(seen) if name.startswith(wanted)), None)
              for wanted in ["send", "think", "settings", "fresh", "scroll", "Reasoning", "Copy", "text"]]
    assert None not in places, (seen, places)
    assert places == sorted(places), (seen, places)
    page.get_by_role("button", name="Settings").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Settings")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Settings")).to_be_hidden()
    assert page.evaluate("document.activeElement.id") == "settings", "the focus does not return from the dialog"


def reloads(page):
    """A reload finds the conversation, what was being typed, and the settings; the next turn goes on from there."""
    box = page.get_by_role("textbox", name="Message")
    answer = page.locator("article.assistant").last.locator(".answer").text_content()
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_role("button", name="Done").click()
    box.fill("half a thou")
    count = page.locator("article").count()
    page.reload()
    expect(page.locator("article")).to_have_count(count)
    expect(page.locator("article.assistant").last.locator(".answer")).to_have_text(answer)
    assert box.input_value() == "half a thou"
    assert page.get_by_label("Temperature").input_value() == "0.5"
    page.get_by_role("button", name="New chat").click()
    box.fill("")
    page.reload()
    expect(page.locator("article")).to_have_count(0)


def reloads_while_writing(page):
    """What was written so far is kept, and does not look like an error."""
    never_ends(page)
    say(page, "Never stop")
    expect(page.locator(".answer").last).to_contain_text("word word")
    page.reload()
    expect(page.locator("article.assistant")).to_have_count(1)
    expect(page.locator(".answer").last).to_contain_text("word word")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    page.get_by_role("button", name="New chat").click()


def outlives_the_server(page, options):
    """The server stops in the middle of a conversation and comes back: the conversation goes on."""
    flags = ["-c", "4096", "--batched-session", "2"]
    with Server(options.q36, *flags) as server:
        page.goto(server.url)
        say(page, "What is the capital of France?")
        settled(page, 1)
        port = int(server.url.rsplit(":", 1)[1].strip("/"))
    expect(page.locator("#slots")).to_contain_text("does not answer", timeout=10_000)
    say(page, "And of Italy?")
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached", timeout=30_000)
    with Server(options.q36, *flags, port=port):
        expect(page.locator("#sessions summary")).to_contain_text("sessions busy", timeout=30_000)
        page.get_by_role("button", name="Try again").click()
        settled(page, 2)
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.locator("article.user")).to_have_count(2)
        page.get_by_role("button", name="New chat").click()


def never_ends(page):
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


def stops(page):
    never_ends(page)
    say(page, "Never stop")
    expect(page.locator(".answer").last).to_contain_text("word word")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".note").last).to_contain_text("Stopped.")
    say(page, "Again")
    expect(page.locator("article.assistant").last.locator(".answer")).to_contain_text("word word")
    page.keyboard.press("Escape")
    expect(page.locator(".note").last).to_contain_text("Stopped.")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert page.evaluate("document.activeElement.id") == "text", "the focus is lost"
    expect(page.locator("#said")).to_contain_text("word word", timeout=5_000)


SAMPLE = """# Title
Some **bold**, *italic*, `a < b` and ~~old~~ [a link](https://example.org) [bad](javascript:alert(1))

- one
- two
  - inner
3. three

> quoted

| a | b |
|---|--:|
| 1 | <b>2</b> |

| a wide column | a wide column | a wide column | a wide column | a wide column | a wide column | a wide column | a wide column | a wide column | a wide column | a wide column | a wide column |
|---|---|---|---|---|---|---|---|---|---|---|---|
| 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 | 11 |

```python
print("<script>alert(1)</script>")  # a long comment a long comment a long comment a long comment a long comment a long comment a long comment a long comment a long comment a long comment a long comment a long comment
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
    assert body.locator("td >> nth=1").evaluate("node => getComputedStyle(node).textAlign") == "right"
    height = body.locator("th").last.bounding_box()["height"]
    assert height < 120, f"a heading of a wide table is broken into letters: {height}"
    widths = page.evaluate("[document.documentElement.scrollWidth, document.getElementById('scroll').scrollWidth, innerWidth]")
    assert max(widths) == page.viewport_size["width"], f"something is wider than the page: {widths}"
    picture("markdown")


def asks_for_a_key(page, picture):
    expect(page.locator("#slots")).to_have_text("A key is needed.")
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
    expect(page.locator("#model")).to_contain_text("Qwen")
    expect(page.locator("#tokens")).to_contain_text("of 512 tokens")
    assert page.evaluate("sessionStorage.getItem('q36-key')") == KEY
    assert page.evaluate("localStorage.length") == 0


def names_are_there(page):
    """Every control has a name for those who do not see it."""
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, input, textarea, meter')].filter((node) =>
            !(node.labels?.length || node.textContent.trim() || node.getAttribute('aria-label'))).map((node) => node.outerHTML)"""
    )
    assert nameless == [], nameless


ASKS_ANOTHER_ORIGIN = """async ([url, key]) => {
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-stainless-lang': 'js' };
    const messages = [{ role: 'user', content: 'What is the capital of France?' }];
    const body = JSON.stringify({ messages, stream: true, thinking: false, temperature: 0 });
    try {
        const answer = await fetch(url + '/v1/chat/completions', { method: 'POST', headers, body });
        return [answer.status, await answer.text()];
    } catch (error) {
        return [0, String(error)];
    }
}"""


def lets_other_origins_in(browser, options):
    """A page from elsewhere gets an answer, and can read errors, with --cors only."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>elsewhere</title>")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as elsewhere:
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{elsewhere.server_port}")
        with Server(options.q36, "--cors", "--api-key", KEY) as server:
            status, text = page.evaluate(ASKS_ANOTHER_ORIGIN, [server.url, KEY])
            assert status == 200 and "Paris" in text and text.endswith("data: [DONE]\n\n"), (status, text)
            status, text = page.evaluate(ASKS_ANOTHER_ORIGIN, [server.url, "wrong"])
            assert status == 401 and "a key is needed" in text, (status, text)
        with Server(options.q36, "--api-key", KEY) as server:
            status, text = page.evaluate(ASKS_ANOTHER_ORIGIN, [server.url, KEY])
            assert status == 0 and "Failed to fetch" in text, (status, text)
        page.close()
        elsewhere.shutdown()


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

            with Server(options.q36, "-c", "4096", "--batched-session", "2") as server:
                page.goto(server.url)
                names_are_there(page)
                keys(page)
                chats(page, picture)
                tabs(page)
                reloads(page)
                lists_sessions(page, picture)
                draws_markdown(page, picture)
                stops(page)
                page.get_by_role("button", name="New chat").click()
                page.reload()
                reloads_while_writing(page)
            assert problems == [], problems
            outlives_the_server(page, options)
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
        lets_other_origins_in(browser, options)
        print("other origins: ok")
        browser.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--q36", default=str(ROOT / "target/release/q36"))
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--pictures")
    run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
