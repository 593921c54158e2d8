"""A folder that is held open, so that names below it are looked up in it and no link can lead anywhere else.

A part of the seam of its own: only tools that touch files need it.
"""

import sys

if sys.platform == "win32":
    from fanjoin.ipc.platform.windows_folder import Folder
else:
    from fanjoin.ipc.platform.posix_folder import Folder

__all__ = ["Folder"]
