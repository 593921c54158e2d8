"""Open the store of a home and print "ok", or the error that a user would see. Arguments: the home, the instance.

As root it first becomes nobody, since no mode bit keeps root from writing; with ``as-is`` it stays who it is.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))

from store_samples import open_store

from fanjoin.ipc.errors import StorageError
from fanjoin.supervisor.store.owners import Owner

home, instance_id, who = sys.argv[1:]
if who == "nobody" and hasattr(os, "setuid") and os.geteuid() == 0:
    os.setuid(65534)
owner = Owner(instance_id=instance_id, run_tag="r", pid=1, process_start="1", boot_id="b", lock_path="l")
try:
    store = open_store(Path(home), owner, lambda _committed: None)
except StorageError as error:
    print(error)  # noqa: T201
else:
    print("ok" if store.close(60) else "not closed")  # noqa: T201
