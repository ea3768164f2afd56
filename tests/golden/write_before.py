"""Write ``before.tar.xz``: what the code of one day published, for the code of later days to accept.

Run ``python -m tests.golden.write_before FILE``. The archive that is kept was written before the source tree
was rebuilt. It must not be written anew by later code: it shows that later code still reads it.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.golden.frozen import frozen
from tests.golden.ledger_cases import write_ledger
from tests.golden.publication_cases import MODELS, RELEASES, learn_into, release_into, workplace


def main(archive: Path) -> None:
    """Write folders of every method and model, and ledgers, into an archive."""
    with tempfile.TemporaryDirectory() as name:
        target = Path(name) / "before"
        target.mkdir()
        with workplace("before") as folder:
            for release in RELEASES:
                shutil.copytree(
                    release_into(folder, release), target / "releases" / release.replace(" ", "-")
                )
            for model in MODELS:
                shutil.copytree(learn_into(folder, model), target / "models" / model)
            for path in folder.glob("golden-2026.ledger*"):
                shutil.copy(path, target / path.name)
        with frozen("ledger before"), write_ledger(target / "charged.ledger") as ledger:
            head = ledger.head
        (target / "head.json").write_text(json.dumps(list(head)) + "\n")
        with tarfile.open(archive, "w:xz") as file:
            file.add(target, "before")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
