"""How long tests try: `make test-all` sets GROUPWISE_TESTS=all, for ever more examples, tables and kills."""

from __future__ import annotations

import os

THOROUGH = os.environ.get("GROUPWISE_TESTS") == "all"
