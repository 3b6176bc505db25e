"""Open every page of a built site in a browser, at the widths of a desk and of a phone: nothing may go wrong.

    python docs/check_pages.py docs/_build/html

Needs Chromium or Chrome, and says so where there is none. Told are errors and warnings of the browser's
console, and pages that are wider than the window.
"""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

BROWSERS = "chromium", "chromium-browser", "google-chrome"
WIDTHS = 1280, 390
SECONDS = 300

VISITOR = """<!doctype html><body><script>
const check = async () => {
  for (const width of %(widths)s) for (const page of %(pages)s) {
    const frame = document.createElement("iframe");
    frame.width = width; frame.height = 900; frame.src = page;
    await new Promise(done => { frame.onload = done; document.body.append(frame); });
    const wide = frame.contentDocument.documentElement.scrollWidth;
    if (wide > width) report(`${page} is ${wide} wide in a window of ${width}`);
    frame.remove();
  }
};
const report = text => document.body.append(Object.assign(document.createElement("p"), {innerText: text}));
check().then(() => report("all were opened"));
</script></body>"""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and says nothing."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def problems_of(site: Path, browser: str) -> list[str]:
    """One line for each thing that is wrong."""
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    with tempfile.TemporaryDirectory() as folder:
        visitor = site / "visitor.html"
        visitor.write_text(
            VISITOR % {"widths": json.dumps(WIDTHS), "pages": json.dumps(pages)}, encoding="utf-8"
        )
        handler = functools.partial(Handler, directory=str(site))
        server = http.server.ThreadingHTTPServer(("localhost", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            address = f"http://localhost:{server.server_port}/visitor.html"
            done = subprocess.run(
                [
                    *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
                    *("--disable-background-networking", "--disable-component-update"),
                    *("--enable-logging=stderr", f"--user-data-dir={folder}"),
                    *(f"--virtual-time-budget={1000 * SECONDS}", "--dump-dom", address),
                ],
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=True,
            )
        finally:
            server.shutdown()
            visitor.unlink()
    lines = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    said = [line.split("] ", 1)[-1] for line in lines]
    told = [part.split("</p>")[0] for part in done.stdout.split("<p>")[1:]]
    if "all were opened" not in told:
        return [*said, *told, "not all pages could be opened"]
    return [*said, *told[:-1]]


def main(argv: list[str]) -> int:
    """Print what is wrong; 1 if something is."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        print("check_pages.py: no browser is installed, so no page was opened")
        return 0
    problems = problems_of(Path(argv[0]), browser)
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"Opened at widths {' and '.join(map(str, WIDTHS))}: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
