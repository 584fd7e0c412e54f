"""Memory between the steps of training on a CPU."""

from __future__ import annotations

import ctypes
import logging
import platform

logger = logging.getLogger(__name__)

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # of malloc.h


def keep_freed_memory() -> bool:
    """Tell glibc to keep big blocks that are freed; True where it does.

    By default each gradient and activation over some megabytes is returned to the system when it is freed and comes
    back page by page, zeroed, at the next step: a tenth of a step's time for a model with a large vocabulary.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    done = all([mallopt(_M_MMAP_MAX, 0), mallopt(_M_TRIM_THRESHOLD, 2**31 - 1), mallopt(_M_TOP_PAD, 64 << 20)])
    logger.info("freed memory is %s", "kept between steps" if done else "returned at each step: mallopt refused")
    return done
