"""Measure encoders on every benchmark of a folder, side by side; differences are from the first.

  python benchmarks/suite.py start=ENCODER trained=xsent-small --data FOLDER --output benchmarks/results/suite.json
  python benchmarks/suite.py start=ENCODER neutral=EXPORT trained=xsent-small --data FOLDER --output results.json \
    --prompts "query: " "passage: "

With --prompts, the first encoder is also measured with these prompts for questions and passages; all other texts
get the first. Texts are cut at 192 tokens, and encoded in bfloat16 if the CPU computes it in hardware. A page of tables
and charts is written beside the results, and the same command resumes.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from hf_xsent import evaluate
from hf_xsent.evaluation.summary import summary_table
from hf_xsent.logs import configure_logging

MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]


def with_prompts(encoder: Path, folder: Path, query: str, passage: str) -> None:
    """Write a folder of links to a plain encoder's files that adds mean pooling and prompts."""
    folder.mkdir()
    for path in encoder.iterdir():
        (folder / path.name).symlink_to(path.resolve())
    (folder / "1_Pooling").mkdir()
    prompts = {"prompts": {"query": query, "passage": passage}, "default_prompt_name": "query"}
    contents = {
        "modules.json": MODULES,
        "1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
        "config_sentence_transformers.json": prompts,
    }
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


def main() -> None:
    """Measure the models and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=FOLDER", help="models, by their names in the results")
    parser.add_argument("--data", required=True, help="a folder with a folder per benchmark")
    parser.add_argument("--output", required=True, help="JSON file")
    parser.add_argument("--prompts", nargs=2, metavar=("QUERY", "PASSAGE"))
    parser.add_argument("--max_length", type=int, default=192)
    options = parser.parse_args()
    configure_logging()
    if wrong := [text for text in options.models if not Path(text.partition("=")[2]).is_dir() or "=" not in text]:
        parser.error(f"{wrong[0]} is not NAME=FOLDER with an existing folder")
    folders = {name: Path(path).resolve() for name, _, path in (text.partition("=") for text in options.models)}
    data, output = Path(options.data).resolve(), Path(options.output).resolve()
    with TemporaryDirectory() as folder:
        os.chdir(folder)  # so that the results name the models, not their places
        for name, path in folders.items():
            Path(name).symlink_to(path)
        models = list(folders)
        if options.prompts:
            models.append(f"{models[0]} with prompts")
            with_prompts(Path(models[0]), Path(models[-1]), *options.prompts)
        evaluation = evaluate(
            models,
            str(data),
            languages={"tatoeba": ["36"]},
            max_length=options.max_length,
            precision="auto",
            output=str(output),
            page=str(output.with_suffix(".html")),
        )
        print(summary_table(evaluation.tasks, evaluation.by_model).markdown())
        os.chdir("/")


if __name__ == "__main__":
    main()
