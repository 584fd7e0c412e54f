"""Measure a SentenceTransformer on our evaluation tasks, also during its training."""

from __future__ import annotations

from typing import Any

from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator

from hf_xsent.errors import RecipeError
from hf_xsent.evaluation.task import EvaluationTask, ModelEncoder


class TaskEvaluator(SentenceEvaluator):
    """One of our evaluation tasks as the ``evaluator`` of SentenceTransformerTrainer; give several as a list.

    Its metrics are the task's main metric of each language, and that of all: ``tatoeba_deu``, ``tatoeba_mean``.

    ```python
    from hf_xsent import TaskEvaluator, load_tasks
    from sentence_transformers import SentenceTransformer

    tasks = load_tasks({"tatoeba": "data/tatoeba"}, {"tatoeba": ["de", "sw"]})
    evaluator = [TaskEvaluator(task) for task in tasks]  # SentenceTransformerTrainer(…, evaluator=evaluator)
    print(evaluator[0](SentenceTransformer("exported-mine")))
    ```
    """

    def __init__(self, task: EvaluationTask) -> None:
        super().__init__()
        if not isinstance(task, EvaluationTask):
            raise RecipeError(
                f"TaskEvaluator takes one task, not {type(task).__name__}: give "
                "evaluator=[TaskEvaluator(task) for task in tasks]"
            )
        self.task = task
        self.name = task.name
        self.primary_metric = f"{task.name}_mean"

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return the metrics of the model."""
        scores, main = self.task.score(ModelEncoder(model)), self.task.main_metric
        figures = {name: float(metrics[main]) for name, metrics in scores.languages.items()}
        measured = scores.groups.get("all")
        figures["mean"] = sum(figures.values()) / len(figures) if measured is None else float(measured[main])
        metrics = {f"{self.name}_{name}": value for name, value in figures.items()}
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics
