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
        quiet = serve_load.Quiet(list(serve_load.DEMO))
        for sessions in ("2", "4"):
            options = serve_load.parse(["--sessions", sessions, "--seconds", str(SECONDS)])
            with self.subTest(sessions=sessions), tempfile.TemporaryDirectory(prefix="q36-load-") as folder:
                # What gives way is kept on disk, and comes back from there under load.
                options.flags = [*serve_load.DEMO, *(["--kv-disk-dir", folder, "--kv-cache-min-tokens", "32"] if sessions == "4" else [])]
                result, odd = serve_load.measure(options, quiet)
                self.assertEqual(serve_load.verdict(result, options), [], f"{result}\n" + "\n".join(odd[:5]))
                self.assertGreaterEqual(result["requests"], options.clients, result)
                if sessions == "4":
                    self.assertGreater(result["prompt_share_cached"], 0, result)

    def test_an_answer_is_right_where_a_quiet_server_gives_it(self):
        said = lambda text: serve_load.Answer(text=text, finish="stop")  # noqa: E731

        class Said(serve_load.Quiet):
            """Says how it came there."""

            def converse(self, script, before, way):
                asked.append((len(before), way.start, way.last, way.other))
                return said(f"{script.name} from {way.start} to {way.last}{' by another' if way.other else ''}")

        script = serve_load.Script("s", "", 3, None)
        anew = ["s from 0 to 0", "s from 1 to 1", "s from 2 to 2"]
        texts = {1: anew, 2: [anew[0], anew[0], "s from 0 to 0 by another"], 3: [anew[0], "t"]}
        record = lambda number, turn, text: serve_load.Record("s", turn, number, said(text))  # noqa: E731
        records = [record(number, turn, text) for number, all_texts in texts.items() for turn, text in enumerate(all_texts)]
        records.insert(1, serve_load.Record("s", 0, 4, error="gone"))
        asked = []
        serve_load.judge(records, [script], Said([]))
        anew, others = "('', 's from 1 to 1', (), 'stop')", ["('', 's from 0 to 0', (), 'stop')", "('', 's from 0 to 0 by another', (), 'stop')"]
        self.assertEqual([one.said for one in records if one.said], [f"('', 't', (), 'stop') instead of {' or '.join([anew, *others])}"])
        # Each way once, anew first, and no more of them than it takes.
        first = [(0, 0, 0, False), (1, 1, 1, False), (2, 2, 2, False)]
        second = [(1, 0, 0, False), (2, 2, 2, False), (2, 1, 1, False), (2, 0, 1, False), (2, 1, 1, True), (2, 0, 1, True), (2, 0, 0, True)]
        self.assertEqual(asked, [*first, *second, (1, 0, 0, True)])

    def test_the_quiet_server_saves_nothing(self):
        self.assertEqual(serve_load.without_disk(["-m", "x", "--kv-disk-dir", "y", "--kv-fsync", "--kv-disk-dir=z"]), ["-m", "x", "--kv-fsync"])

    def test_who_is_passed_over_is_counted(self):
        answer = lambda sent, first: serve_load.Answer(sent=sent, first=first)  # noqa: E731
        self.assertEqual(serve_load.overtakings([answer(0, 9), answer(1, 2), answer(3, 4), answer(5, 10)]), 2)
        self.assertEqual(serve_load.overtakings([answer(0, 1), answer(1, 2)]), 0)


if __name__ == "__main__":
    unittest.main()
