"""Configure the log lines that commands write to standard error."""

from __future__ import annotations

import logging


def quiet_logs(verbose: bool = False) -> None:
    """Show log lines of this package; show those of other libraries only if ``verbose``."""
    import transformers

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("hf_xsent").setLevel(logging.INFO)
    logging.getLogger("huggingface_hub").setLevel(logging.INFO if verbose else logging.ERROR)
    if verbose:
        transformers.logging.set_verbosity_info()
    else:
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
