"""Python's garbage collector, told to leave alone what stays.

Its full rounds look at everything that was ever imported, which is most of what there is, and come
the sooner the more messages a batch has.
"""

import gc
from typing import Final

_THRESHOLDS: Final = (50_000, 20, 100)


def freeze() -> None:
    """Set aside what has been made so far, and look for garbage less often from now on.

    For processes that live long, once everything is imported: what they make per message is freed
    by counting references, as ever; only cycles wait.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
