"""What differs between operating systems, behind one seam: the same names on each, one small file per system.

Everything that asks the system about processes, signals, locks and limits goes through here; no other module may
import ``fcntl``, ``msvcrt``, ``resource`` or call a POSIX-only function of ``os``.
"""

import sys

# Each file's __all__ is the seam; naming its names here again would be a second list to keep.
if sys.platform == "win32":
    from fanjoin.ipc.platform.windows import *  # noqa: F403
elif sys.platform == "darwin":
    from fanjoin.ipc.platform.macos import *  # noqa: F403
else:
    from fanjoin.ipc.platform.linux import *  # noqa: F403
