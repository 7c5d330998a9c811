"""Ctrl-C while the command `cgr` is being imported: there is nothing to lose, so it ends at once, without a traceback.

`cli/main.py` installs the usual handler when it begins. A program that imports cgr is not changed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

EXIT_CODE = 130

if os.path.basename(sys.argv[0] if sys.argv else "") in ("cgr", "-m") and (
    threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_CODE))
