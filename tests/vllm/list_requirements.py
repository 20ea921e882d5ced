"""What a wheel of vLLM for CPUs requires, less its torch packages: the right torch is there, the others have no build.

python tests/vllm/list_requirements.py FOLDER_OF_THE_WHEEL > requirements.txt
"""

from __future__ import annotations

import sys
import zipfile
from email.parser import Parser
from pathlib import Path


def list_requirements(wheel: Path) -> list[str]:
    """The requirements of a wheel, without extras and without packages whose names begin with torch."""
    with zipfile.ZipFile(wheel) as archive:
        [place] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(place).decode())
    lines = metadata.get_all("Requires-Dist") or []
    return [line for line in lines if "extra ==" not in line and not line.startswith("torch")]


if __name__ == "__main__":
    [wheel] = Path(sys.argv[1]).glob("*.whl")
    sys.stdout.write("\n".join(list_requirements(wheel)) + "\n")
