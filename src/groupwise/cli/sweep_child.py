"""The process of one run of a sweep: `groupwise train`. It ends when the sweep's process ends.

python -m groupwise.cli.sweep_child PARENT train RUN.toml --out FOLDER --resume --plain
"""

from __future__ import annotations

import sys

from groupwise.cli.main import main
from groupwise.system.sandbox import die_with_parent

if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    sys.argv = ["groupwise", *sys.argv[2:]]
    main()
