"""More clients than sessions, for a short while: nobody gets another one's state, nobody is passed over, nothing fails."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "speed-bench"))
import serve_load

SECONDS = 10


class Load(unittest.TestCase):
    def test_thirty_two_clients_get_the_answers_of_a_quiet_server_and_in_turn(self):
        known = None
        for sessions in ("2", "4"):
            options = serve_load.parse(["--sessions", sessions, "--seconds", str(SECONDS)])
            known = known or serve_load.quiet_answers(serve_load.scripts(), list(serve_load.DEMO), options.patience, True)
            with self.subTest(sessions=sessions), tempfile.TemporaryDirectory(prefix="q36-load-") as folder:
                # What gives way is kept on disk, and comes back from there under load.
                options.flags = [*serve_load.DEMO, *(["--kv-disk-dir", folder, "--kv-cache-min-tokens", "32"] if sessions == "4" else [])]
                result, odd = serve_load.measure(options, known)
                self.assertEqual(serve_load.verdict(result, options), [], f"{result}\n" + "\n".join(odd[:5]))
                self.assertGreaterEqual(result["requests"], options.clients, result)
                if sessions == "4":
                    self.assertGreater(result["prompt_share_cached"], 0, result)

    def test_what_is_another_text_and_what_is_as_good(self):
        quiet = serve_load.Answer(text="A B", finish="stop")
        top = [{"token": " B", "logprob": -0.7}, {"token": " C", "logprob": -0.8}, {"token": " D", "logprob": -2.0}]
        quiet.logprobs = [
            {"token": "A", "logprob": 0.0, "top_logprobs": [{"token": "A", "logprob": 0.0}]},
            {"token": " B", "logprob": -0.7, "top_logprobs": top},
        ]
        for text, bound, kind in [("A C", 0.2, "tie"), ("A C x", 0.2, "tie"), ("A D", 0.2, "mismatch"), ("A C", 0, "mismatch"), ("B", 0.2, "mismatch")]:
            self.assertEqual(serve_load.judge(quiet, serve_load.Answer(text=text), bound), kind, text)
        called = serve_load.Answer(text="A", calls=[{"name": "f", "arguments": "{}"}])
        self.assertEqual(serve_load.judge(quiet, called, 0.2), "unjudged")

    def test_who_is_passed_over_is_counted(self):
        answer = lambda sent, first: serve_load.Answer(sent=sent, first=first)  # noqa: E731
        self.assertEqual(serve_load.overtakings([answer(0, 9), answer(1, 2), answer(3, 4), answer(5, 10)]), 2)
        self.assertEqual(serve_load.overtakings([answer(0, 1), answer(1, 2)]), 0)


if __name__ == "__main__":
    unittest.main()
