"""Open the built page in headless Chromium, search for its sentences, and measure size and time.

python examples/browser/measure.py
python examples/browser/measure.py --queries 20 --site elsewhere/site

Each sentence that is searched for must be its own first result.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import statistics
import subprocess
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TYPE = """<script type="module">
const report = (measured) => fetch("measured", { method: "POST", body: JSON.stringify(measured) });
window.addEventListener("error", (event) => report({ error: event.message }));
window.addEventListener("unhandledrejection", (event) => report({ error: String(event.reason) }));
const until = async (done) => { while (!done()) await new Promise((next) => setTimeout(next, 10)); };
const [query, status] = ["query", "status"].map((id) => document.getElementById(id));
await until(() => document.body.dataset.ready);
const measured = { status: status.textContent, milliseconds: [], first: [] };
for (const text of QUERIES) {
  query.value = text;
  query.dispatchEvent(new Event("input"));
  await until(() => status.textContent.endsWith(`“${text}”`));
  measured.milliseconds.push(parseFloat(status.textContent));
  measured.first.push(document.querySelector("#results li").textContent);
}
await report(measured);
</script>"""


class Handler(SimpleHTTPRequestHandler):
    """Serve the page with the code that types into it, and receive what it measured."""

    def __init__(self, *arguments: Any, answers: queue.Queue[dict[str, Any]], script: str, **names: Any) -> None:
        self.answers, self.script = answers, script
        super().__init__(*arguments, **names)

    def do_GET(self) -> None:
        """Add the script to the page; send other files as they are."""
        if self.path != "/":
            super().do_GET()
            return
        page = Path(self.directory, "index.html").read_text(encoding="utf-8") + self.script
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(page.encode())

    def do_POST(self) -> None:
        """Receive what the page measured."""
        self.answers.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        """Print nothing."""


def measure(site: Path, queries: int, seconds: float) -> dict[str, Any]:
    """Return sizes in bytes, the status after loading, and milliseconds and first result of each query."""
    sentences = json.loads((site / "sentences.json").read_text(encoding="utf-8"))["sentences"]
    searched = sentences[:: max(1, len(sentences) // queries)][:queries]
    script = TYPE.replace("QUERIES", json.dumps(searched).replace("<", "\\u003c"))
    answers: queue.Queue[dict[str, Any]] = queue.Queue()
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Handler, answers=answers, script=script, directory=str(site))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [str(CHROMIUM), "--headless=new", "--disable-gpu", f"--user-data-dir={profile}"]
        command += ["--no-sandbox"] * (os.geteuid() == 0) + ["--enable-logging=stderr", "--remote-debugging-port=0"]
        with Path(profile, "log").open("w+", encoding="utf-8") as log:
            browser = subprocess.Popen([*command, f"http://127.0.0.1:{server.server_port}/"], stderr=log)
            try:
                measured = answers.get(timeout=seconds)
            except queue.Empty:
                measured = {"error": f"no answer after {seconds} s"}
            finally:
                browser.terminate()
                browser.wait()
                server.shutdown()
            if "error" in measured:
                console = [
                    line for line in Path(log.name).read_text(encoding="utf-8").splitlines() if "CONSOLE" in line
                ]
                raise SystemExit("\n".join([measured["error"], *console]))
    for text, first in zip(searched, measured["first"], strict=True):
        if not first.startswith(f"{text} ("):
            raise SystemExit(f"the first result for {text!r} is {first!r}")
    files = {str(path.relative_to(site)): path.stat().st_size for path in site.rglob("*") if path.is_file()}
    return {**measured, "bytes": files}


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description="Measure the page.")
    parser.add_argument("--site", type=Path, default=Path(__file__).parent / "site")
    parser.add_argument("--queries", type=int, default=40, help="search for this many of the sentences")
    parser.add_argument("--seconds", type=float, default=120, help="stop after this time")
    arguments = parser.parse_args()
    measured = measure(arguments.site, arguments.queries, arguments.seconds)
    for name, size in sorted(measured["bytes"].items(), key=lambda item: -item[1]):
        print(f"{size / 1e6:8.2f} MB  {name}")
    print(f"{sum(measured['bytes'].values()) / 1e6:8.2f} MB  in all")
    print(measured["status"])
    times = measured["milliseconds"]
    print(f"{len(times)} queries: median {statistics.median(times):.0f} ms, longest {max(times):.0f} ms")


if __name__ == "__main__":
    main()
