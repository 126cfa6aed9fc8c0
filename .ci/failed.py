"""Prints the tests that failed in the last run of pytest, a line each; nothing where they are more than five."""

import json
from pathlib import Path

MOST = 5

noted = Path(".pytest_cache/v/cache/lastfailed")
failed = sorted(json.loads(noted.read_text())) if noted.exists() else []
if len(failed) <= MOST:
    print("\n".join(failed))
