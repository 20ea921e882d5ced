"""Make the goldens of the examples anew: `python -m tests.equivalence.make_goldens [EXAMPLE ...]`, from the checkout.

Only a change that says *numbers may change* may do so; goldens/README.md has the rest.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.equivalence.example_runs import EXAMPLES, FILES, find_obstacle, name_of, play_example
from tests.equivalence.golden_files import WITHOUT_GOLDEN, find_differences, golden_path, read_golden, write_golden
from tests.equivalence.run_digests import digest_run


def make_golden(example: Path) -> str:
    """Run an example and write its golden; what became of it, in words."""
    obstacle = WITHOUT_GOLDEN.get(name_of(example)) or find_obstacle(example)
    if obstacle:
        return f"left as it is: {obstacle}"
    with tempfile.TemporaryDirectory() as folder:
        play_example(example, Path(folder))
        digests = digest_run(Path(folder))
    if not golden_path(example).exists():
        write_golden(example, digests)
        return "made"
    num_changed = len(find_differences(read_golden(example), digests))
    write_golden(example, digests)
    return f"made anew, {num_changed} entries differ" if num_changed else "the same"


def main(names: list[str]) -> int:
    """Make the goldens of the named examples, or of all."""
    unknown = set(names) - {name_of(path) for path in FILES}
    if unknown:
        sys.stderr.write(f"{EXAMPLES} has no {', '.join(sorted(unknown))}\n")
        return 2
    for path in FILES:
        if not names or name_of(path) in names:
            sys.stdout.write(f"{name_of(path)}: {make_golden(path)}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
