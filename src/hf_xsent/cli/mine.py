"""Find translations among the lines of two text files.

hf-xsent mine news.zh.txt news.en.txt --model runs/mine --output pairs.tsv --threshold 1.06
torchrun --nproc_per_node 8 --no-python hf-xsent mine …   # several processes share encoding and search
hf-xsent mine … --engine ray --address auto   # the workers of a Ray cluster do, if they share the work folder

Say the same again after a stop: what was encoded and searched is kept in the work folder and not done twice.
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, with nothing loaded."""
    parser.add_argument("source", help="Read sentences of one language here, one a line; .gz, .xz, .zst too.")
    parser.add_argument("target", help="Read sentences of the other language here.")
    parser.add_argument("--model", required=True, help="Encode with this model: a folder or a Hub id.")
    parser.add_argument(
        "--output", "-o", required=True, metavar="FILE", help="Write the pairs to this TSV, best first."
    )
    parser.add_argument(
        "--work", metavar="FOLDER", help="Keep vectors and neighbours here, to go on later; default: OUTPUT.work."
    )
    parser.add_argument("--pooling", help="Pool by cls, mean or max; default: as the model states.")
    parser.add_argument("--max_length", type=int, help="Cut sentences after this many tokens.")
    parser.add_argument("--k", type=int, default=4, help="Take the margin over so many nearest neighbours.")
    parser.add_argument(
        "--margin",
        default="ratio",
        choices=("ratio", "distance", "absolute"),
        help="Score by the cosine's ratio to its neighbours', distance or absolute.",
    )
    parser.add_argument(
        "--candidates",
        default="max",
        choices=("max", "forward", "backward", "intersection"),
        help="Keep the best of both directions (max), forward, backward, intersection.",
    )
    parser.add_argument("--threshold", type=float, help="Keep pairs that score at least so much; 1.06 is usual.")
    parser.add_argument(
        "--calibrate", metavar="GOLD", help="Take the threshold with the best F1 on these pairs: texts or line numbers."
    )
    parser.add_argument("--top", type=int, help="Keep the best so many pairs.")
    parser.add_argument("--plot", metavar="FILE", help="Draw how many pairs have which score into this SVG.")
    parser.add_argument("--memory_mib", type=int, default=512, help="Compare blocks of at most so much memory.")
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        default="float32",
        help="Multiply in this precision; bfloat16 finds the same, sooner where the processor has it.",
    )
    parser.add_argument("--vectors", choices=("float32", "float16"), default="float32", help="Keep vectors like this.")
    parser.add_argument(
        "--index", help="Look neighbours up in a faiss index such as IVF4096,Flat instead of comparing with all."
    )
    parser.add_argument("--probes", type=int, default=32, help="Search so many cells of the index.")
    parser.add_argument(
        "--engine", choices=("here", "ray"), default="here", help="Work on this machine or on a Ray cluster."
    )
    parser.add_argument(
        "--address", default="auto", help="Find the Ray cluster here: auto is the one of this machine, local a new one."
    )
    parser.add_argument(
        "--device", help="Compute on this device; default: a GPU if there is one, of several processes each its own."
    )


def run(arguments: argparse.Namespace) -> None:
    """Open the model, mine, say what was found."""
    import os
    from dataclasses import fields, replace

    import torch

    from hf_xsent.logs import quiet_logs
    from hf_xsent.mining.pipeline import MiningSettings, mine_files
    from hf_xsent.mining.ray_engine import RayEngine
    from hf_xsent.mining.shards import Processes, default_device
    from hf_xsent.mining.vectors import identify_model
    from hf_xsent.models.embedder import SentenceEmbedder

    quiet_logs()
    stated = {field.name: getattr(arguments, field.name) for field in fields(MiningSettings) if field.name != "device"}
    settings = MiningSettings(**stated)
    device = arguments.device or default_device(int(os.environ.get("LOCAL_RANK", 0)))
    engine = RayEngine(arguments.address, device) if arguments.engine == "ray" else None
    here = "cpu" if engine and not torch.cuda.is_available() else device  # the workers' GPUs need not be here
    embedder = SentenceEmbedder.from_pretrained(
        arguments.model, pooling=arguments.pooling, max_length=arguments.max_length, device=here
    )
    mined = mine_files(
        arguments.source,
        arguments.target,
        arguments.output,
        embedder,
        identify_model(arguments.model, embedder),
        arguments.work or f"{arguments.output}.work",
        replace(settings, device=str(embedder.model.device)),
        engine or Processes(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))),
    )
    if mined is not None:
        print(f"{len(mined):,} pairs, best first, are in {arguments.output}")
