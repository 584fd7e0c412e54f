"""Search in a collection against a slow recomputation and sentence-transformers' evaluator."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pytest
from datasets import Dataset
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

from hf_xsent import SentenceEmbedder, evaluate, load_tasks
from hf_xsent.data.benchmarks.collection import load_collection, store_collection
from hf_xsent.data.readers.sources import cache_folder
from hf_xsent.errors import DataError, RecipeError
from hf_xsent.evaluation import retrieval as module
from hf_xsent.evaluation.retrieval import RetrievalTask
from hf_xsent.evaluation.summary import failing
from hf_xsent.models.pretraining import AlignmentForSentenceEmbedding
from hf_xsent.publishing.evaluation_tables import read_results, tabulate

CODES = ("de", "en", "sw")
Records = list[dict[str, Any]]


def _write(folder: Path, corpus: Records, queries: Records, judgements: str) -> Path:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, records in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records), encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text(judgements, encoding="utf-8")
    return folder


def _judgements(scores: Sequence[int] = (1, 2)) -> dict[tuple[str, str], int]:
    """Judge 40 documents of each query but the first: 20 relevant, 20 not."""
    draw = np.random.default_rng(0)
    return {
        (f"q{query}", f"d{document}"): scores[place % len(scores)] if place < 20 else 0
        for query in range(1, 12)
        for place, document in enumerate(draw.permutation(150)[:40])
    }


def _folder(folder: Path, judged: dict[tuple[str, str], int], languages: Sequence[str] = CODES) -> Path:
    corpus, queries = (
        [{"_id": f"{letter}{n}", "text": f"text {letter}{n}", "language": languages[n % 3]} for n in range(count)]
        for letter, count in (("d", 150), ("q", 12))
    )
    lines = [f"{query}\t{document}\t{score}\n" for (query, document), score in judged.items()]
    return _write(folder, corpus, queries, "query-id\tcorpus-id\tscore\n" + "".join(lines))


def _encode(texts: Sequence[str], **_: Any) -> np.ndarray:
    return np.array([np.random.default_rng([*text.encode()]).standard_normal(4) for text in texts], dtype=np.float32)


MODEL = SimpleNamespace(encode=_encode)


@pytest.mark.parametrize("at_once", [1 << 15, 64])
def test_figures_are_those_of_the_whole_ranking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(module, "_PASSAGES_AT_ONCE", at_once)
    judged = _judgements()
    scores = RetrievalTask.load(_folder(tmp_path, judged)).score(_encode)
    names = [f"d{n}" for n in range(150)]
    vectors = {name: _encode([f"text {name}"])[0].astype(float) for name in (*names, *(f"q{n}" for n in range(12)))}

    def cosine(one: str, other: str) -> float:
        return float(vectors[one] @ vectors[other] / np.linalg.norm(vectors[one]) / np.linalg.norm(vectors[other]))

    for code, figures in scores.languages.items():
        ndcg, mrr, recall_10, recall, own = [], [], [], [], []
        for number in (number for number in range(1, 12) if CODES[number % 3] == code):
            ranking = sorted(names, key=lambda name, query=f"q{number}": -cosine(query, name))
            gains = [judged.get((f"q{number}", name), 0) for name in ranking]
            best = sorted(gains, reverse=True)
            dcg, ideal = (sum(g / math.log2(rank + 2) for rank, g in enumerate(some[:10])) for some in (gains, best))
            ndcg.append(dcg / ideal)
            mrr.append(next((1 / (rank + 1) for rank, gain in enumerate(gains[:10]) if gain), 0.0))
            recall_10.append(sum(gain > 0 for gain in gains[:10]) / 20)
            recall.append(sum(gain > 0 for gain in gains[:100]) / 20)
            own.append(np.mean([CODES[int(name[1:]) % 3] == code for name in ranking[:10]]))
        all_figures = {"ndcg": ndcg, "mrr": mrr, "recall_10": recall_10, "recall": recall, "own": own}
        for key, expected in all_figures.items():
            assert figures[key] == pytest.approx(100 * np.mean(expected)) and 0 < figures[key] < 100
        assert figures["pairs"] == len(scores.outcomes.rows[code]) == len(ndcg)
    assert scores.groups["all"]["ndcg"] == pytest.approx(np.mean([one["ndcg"] for one in scores.languages.values()]))


@pytest.mark.parametrize("at_once", [1 << 15, 64])
def test_a_document_is_as_near_as_its_nearest_passage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(module, "_PASSAGES_AT_ONCE", at_once)
    passages = {f"d{number}": [f"d{number} {place}" for place in range(1 + number % 5)] for number in range(130)}
    corpus = [{"_id": name, "text": text} for name, texts in passages.items() for text in texts]
    np.random.default_rng(1).shuffle(corpus)  # passages of a document need not follow each other
    judged = {f"q{query}": [f"d{(7 * query + 11 * place) % 130}" for place in range(20)] for query in range(6)}
    lines = [f"{query}\t{name}\t1\n" for query, names in judged.items() for name in names]
    _write(tmp_path, corpus, [{"_id": query, "text": query} for query in judged], "".join(lines))
    task = RetrievalTask.load(tmp_path)
    recalls, ranks = [], []
    for query, names in judged.items():
        vector = _encode([query])[0]

        def cosine(name: str, vector: np.ndarray = vector) -> float:
            return max(float(text @ vector / np.linalg.norm(text)) for text in _encode(passages[name]))

        ranking = sorted(passages, key=cosine, reverse=True)
        recalls.append(len({*ranking[:100]} & {*names}) / len(names))
        ranks.append(next((1 / (rank + 1) for rank, name in enumerate(ranking[:10]) if name in names), 0.0))
    encoded: list[str] = []

    def encode(texts: Sequence[str]) -> np.ndarray:
        encoded.extend(texts)
        return _encode(texts)

    scores = task.score(encode)
    figures, items = scores.languages["und"], [*task.items(scores.outcomes)]
    assert {*encoded} == {*judged, *(text for texts in passages.values() for text in texts)}
    for item in items:
        vector = _encode([item["text"]])[0]
        for text, name in ((item["found"], item["found_id"]), (item["right"], item["right_id"])):
            assert text == max(
                passages[name],
                key=lambda one, vector=vector: _encode([one])[0] @ vector / np.linalg.norm(_encode([one])[0]),
            )
    assert figures["recall"] == pytest.approx(100 * np.mean(recalls)) and 0 < figures["recall"] < 100
    assert figures["mrr"] == pytest.approx(100 * np.mean(ranks))


def test_documents_of_one_text_are_in_the_order_of_the_file() -> None:
    """The same cosine comes out different by where it stands in the product of two matrices."""
    texts = [f"d{number % 9}" for number in range(45)]

    def encode(texts: Sequence[str]) -> np.ndarray:
        return np.hstack([_encode([f"{text} {part}" for text in texts]) for part in range(8)])

    for row in module.nearest_documents(encode(["q1", "q2", "q3"]), texts, range(45), encode, 12):
        assert row.tolist() == [document for first in row[::5] for document in range(first, 45, 9)][:12]


def test_figures_are_those_of_sentence_transformers(tmp_path: Path) -> None:
    """Its judgements have no scores."""
    judged = _judgements(scores=(1,))
    folder = _folder(tmp_path, judged, [""] * 3)
    relevant: dict[str, set[str]] = {}
    for (query, document), score in judged.items():
        relevant.setdefault(query, set()).update([document] if score else [])
    queries = {f"q{n}": f"text q{n}" for n in range(12)}
    corpus = {f"d{n}": f"text d{n}" for n in range(150)}
    evaluator = InformationRetrievalEvaluator(
        queries, corpus, relevant, precision_recall_at_k=[10, 100], corpus_chunk_size=64, write_csv=False
    )
    theirs = evaluator(_SentenceTransformer())
    (report,) = evaluate(MODEL, str(folder)).reports  # as --suite FOLDER
    assert "own" not in report.languages["und"]
    for key, name in {"ndcg": "ndcg@10", "mrr": "mrr@10", "recall_10": "recall@10", "recall": "recall@100"}.items():
        assert report.groups["all"][key] == pytest.approx(100 * theirs[f"cosine_{name}"], abs=1e-3)


def test_recall_is_shown_only_of_collections_with_more_documents_than_its_candidates(tmp_path: Path) -> None:
    for count in (100, 101):
        corpus = [{"_id": str(number), "text": f"text {number}"} for number in range(count)]
        folder = _write(tmp_path / str(count), corpus, [{"_id": "q", "text": "query"}], "q\t3\t1\n")
        evaluation = evaluate(MODEL, {"retrieval": folder})
        heading = str(evaluation).partition("\n")[0]
        assert ("recall" in evaluation.reports[0].groups["all"]) == ("recall@100" in heading) == (count > 100)


@pytest.mark.parametrize("prompts", [None, {"query": "Wo ", "document": "Wo "}])
def test_texts_beyond_the_length_of_the_model_are_counted_and_warned_of(
    encoder_folders: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture, prompts: dict[str, str] | None
) -> None:
    model = AlignmentForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]), max_length=8, prompts=prompts)
    model.save_pretrained(tmp_path / "model")
    embedder = SentenceEmbedder.from_pretrained(str(tmp_path / "model"))
    texts = [" ".join(["Wo"] * count) for count in range(1, 13)]
    corpus = [{"_id": str(number), "text": text} for number, text in enumerate([*texts, texts[-1]])]
    folder = _write(tmp_path / "folder", corpus, [{"_id": "q", "text": "Wo"}], "q\t3\t1\n")
    longer = sum(count + 2 + (prompts is not None) > 8 for count in range(1, 13))
    options: dict[str, Any] = {"tasks": {"retrieval": folder}, "output": tmp_path / "results.json", "device": "cpu"}
    for _ in range(2):  # the second call reads what the first stored
        caplog.clear()
        (report,) = evaluate(str(tmp_path / "model"), **options).reports
        assert report.cut == {"queries": [0, 1], "documents": [longer, 12]}  # different texts
        warned = f"retrieval: {longer} of 12 documents are longer than 8 tokens and were cut: max_length up to 256"
        assert warned in caplog.text
    assert evaluate(embedder, options["tasks"]).reports[0].cut == report.cut and embedder.cut is None
    caplog.clear()
    (report,) = evaluate(str(tmp_path / "model"), **options, max_length=64).reports
    assert report.cut == {"queries": [0, 1], "documents": [0, 12]} and "cut" not in caplog.text


class _SentenceTransformer:
    """What the evaluator calls."""

    similarity_fn_name = "cosine"
    model_card_data = SimpleNamespace(set_evaluation_metrics=lambda *_, **__: None)

    def _encode(self, texts: list[str], **_: Any) -> Any:
        import torch

        return torch.from_numpy(_encode(texts))

    encode = encode_query = encode_document = _encode

    @staticmethod
    def similarity(first: Any, second: Any) -> Any:
        from sentence_transformers.util import cos_sim

        return cos_sim(first, second)


def test_two_models_are_compared_and_the_results_have_the_name_of_the_folder(
    encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = _folder(tmp_path / "our-wiki", _judgements())
    models = [str(encoder_folders[name]) for name in ("xlm-roberta-mlm", "bert")]
    output = tmp_path / "results.json"
    evaluation = evaluate(models, {"retrieval": folder}, languages=["deu", "en", "sw"], output=output)
    first, second = evaluation.reports
    assert {*first.languages} == {"de", "en", "sw"} and first.data == "our-wiki"
    assert {*second.differences["all"]} == {"ndcg", "mrr", "recall_10", "recall", "own"}
    assert "Retrieval, nDCG@10" in str(evaluation)
    assert second.compared_with == models[0]  # which a card compares with the start of the recipe
    encoding = {**first.settings, "dimensions": first.settings["dim"]}
    (table,) = tabulate(read_results([output], [first.settings["model_fingerprint"]]), encoding)
    assert table.title == "Retrieval of our-wiki, 3 languages" and table.result is not None
    assert (table.result.dataset_type, table.result.metric_type) == ("our-wiki", "ndcg_at_10")


def test_titles_headers_and_columns_are_read_as_in_beir_and_trec(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    corpus = [{"_id": 1, "title": "Ada", "text": "thinks.", "language": "deu"}, {"_id": "b", "text": "It runs."}]
    queries = [{"_id": "q", "text": "Who?"}, {"_id": "r", "text": "What?"}]
    folder = _write(tmp_path, corpus, queries, "query-id\tcorpus-id\tscore\nq\t1\t2\nr\tb\t0\n")
    (one,) = load_collection(folder)
    assert (one.passages, one.document_languages) == (["Ada thinks.", "It runs."], ["de", "und"])
    assert (one.queries, one.query_languages, one.relevant) == (["Who?"], ["und"], [{0: 2.0}])
    assert "1 of 2 queries have no relevant document and are omitted" in caplog.text
    notes = RetrievalTask([one]).notes
    assert notes == [
        "retrieval: own language is not measured: 1 of 2 documents and 1 of 1 queries have no field language"
    ]
    (folder / "qrels" / "test.tsv").unlink()
    for text in ("q\t1\t2\nr\tb\t0\n", "q 0 1 2\nr 0 b 0\n\n"):
        (folder / "qrels.tsv").write_text(text, encoding="utf-8")
        assert load_collection(folder) == [one]


@pytest.mark.parametrize(
    ("corpus", "queries", "judgements", "message"),
    [
        (
            [{"_id": "a", "body": "b"}],
            [],
            "",
            r"corpus.jsonl:1: no field text: rename the one that has it \(it has _id, body\)",
        ),
        (
            [{"_id": "a", "text": None}],
            [],
            "",
            r"corpus.jsonl:1: text is None, not a text: fill it, or remove the record",
        ),
        (None, [{"_id": "q", "text": "x"}] * 2, "", r"queries.jsonl:2: the _id 'q' is that of an earlier line"),
        ([], [{"_id": "q", "text": "x", "language": "german"}], "", r"corpus.jsonl is empty"),
        ([{"_id": "a", "text": "x", "language": "german"}], [], "", r"corpus.jsonl:1: unknown language .* is 'de'"),
        (None, None, "q\ta\t1\nq\tb\t1\n", r"test.tsv:2: no _id 'b' in corpus.jsonl"),
        *(
            (
                None,
                None,
                f"q\ta\t{score}\n",
                r"test.tsv:1: lines must be query-id<TAB>corpus-id<TAB>score \(a fin.* not",
            )
            for score in ("high", "inf", "nan")
        ),
        (None, None, "p\ta\t1\n", r"test.tsv:1: no _id 'p' in queries.jsonl"),
        (None, None, "q\ta\t1\nq\ta\n", r"test.tsv:2: lines must be query-id<TAB>corpus-id<TAB>score .*, not 'q\\ta'"),
        (None, None, "q\ta\t1\nq\ta\t1\n", r"test.tsv:2: query 'q' and document 'a' are judged a second time"),
        (None, None, "q\ta\t0\n", r"no query has a relevant document"),
    ],
)
def test_an_error_names_file_and_line(
    tmp_path: Path, corpus: Records | None, queries: Records | None, judgements: str, message: str
) -> None:
    one = [{"_id": "a", "text": "x"}]
    query = [{"_id": "q", "text": "x"}]
    _write(tmp_path, one if corpus is None else corpus, query if queries is None else queries or query, judgements)
    with pytest.raises(DataError, match=message):
        load_collection(tmp_path)


def test_a_folder_without_judgements_is_refused(tmp_path: Path) -> None:
    folder = _folder(tmp_path, _judgements())
    (folder / "qrels" / "test.tsv").unlink()
    with pytest.raises(DataError, match=r"has no file qrels/test.tsv or qrels.tsv: give a folder with corpus.jsonl"):
        load_collection(folder)


class _Shuffled(set[str]):
    def __iter__(self) -> Any:
        return iter(np.random.default_rng(0).permutation(sorted(set.__iter__(self))).tolist())


def _load(collection: dict[str, Any]) -> Any:
    return RetrievalTask.load(store_collection(collection, cache_folder())).sets


def test_the_language_of_records_may_be_named_lang(tmp_path: Path) -> None:
    corpus = [{"_id": 1, "text": "Ein Hund.", "lang": "de"}]
    _write(tmp_path, corpus, [{"_id": "q", "text": "A dog.", "Lang": "en"}], "q\t1\t1\n")
    (collection,) = load_collection(tmp_path)
    assert (collection.document_languages, collection.query_languages) == (["de"], ["en"])


def test_a_file_or_a_bare_collection_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match="corpus.jsonl is a file: give the folder, which has corpus.jsonl"):
        load_tasks({"retrieval": str(tmp_path / "corpus.jsonl")})
    with pytest.raises(RecipeError, match="unknown task 'corpus'.*; give a collection as {'retrieval': collection}"):
        load_tasks({"corpus": {}, "queries": {}, "qrels": {}})
    with pytest.raises(DataError, match="a collection in memory has corpus, queries and qrels, not docs"):
        load_tasks({"retrieval": {"docs": {}, "queries": {}, "qrels": {}}})


def test_a_collection_in_memory_is_measured_as_its_files(tmp_path: Path) -> None:
    judged = _judgements()
    folder = _folder(tmp_path, judged)
    corpus, queries = (
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_text("utf-8").splitlines()]
        for name in ("corpus", "queries")
    )
    qrels: dict[str, dict[str, int]] = {}
    for (query, document), score in judged.items():
        qrels.setdefault(query, {})[document] = score
    expected = evaluate(MODEL, {"retrieval": str(folder)}).reports[0]
    for records in (corpus, pandas.DataFrame(corpus), Dataset.from_list(corpus)):
        in_memory = {"corpus": records, "queries": queries, "qrels": qrels}
        for tasks in ({"retrieval": in_memory}, {"retrieval": {"data": in_memory}}):
            measured = evaluate(MODEL, tasks).reports[0]
            assert measured.languages == expected.languages
            assert measured.data_fingerprint == expected.data_fingerprint and measured.data == ""
    rows = [{"query-id": q, "corpus-id": d, "score": score} for (q, d), score in judged.items()]  # as on the Hub
    for judgements in (rows, pandas.DataFrame(rows), Dataset.from_list(rows)):
        assert _load({"corpus": corpus, "queries": queries, "qrels": judgements}) == load_collection(folder)
    texts = {record["_id"]: record["text"] for record in corpus}  # as InformationRetrievalEvaluator takes them
    plain = {"corpus": texts, "queries": {"q1": "text q1"}, "qrels": {"q1": {*qrels["q1"]}}}
    shuffled = plain | {"qrels": {"q1": _Shuffled(qrels["q1"])}}  # sets have another order in each process
    assert store_collection(shuffled, cache_folder()) == store_collection(plain, cache_folder())
    named = {"corpus": texts, "queries": plain["queries"], "relevant_docs": plain["qrels"]}
    assert _load(named) == _load(plain)
    assert evaluate(MODEL, {"retrieval": plain}).reports[0].groups["all"]["pairs"] == 1
    for ids in ("d1", ["d1"]):
        of_ids = plain | {"queries": {"reset_password": "text q1?token=1"}, "qrels": {"reset_password": ids}}
        (report,) = evaluate(MODEL, {"retrieval": of_ids}).reports
        (alone,) = _load(of_ids)
        assert [*alone.relevant[0].values()] == [1.0] and report.groups["all"]["pairs"] == 1
    titled = {"corpus": {0: {"title": "A", "text": "b"}}, "qrels": {"q1": np.int64(0)}}
    assert _load(plain | titled)[0].passages == ["A b"]
    with pytest.raises(DataError, match="^the collection: no query has a relevant document"):
        _load(plain | {"qrels": {"q1": {"d1": 0}}})
    with pytest.raises(DataError, match="^the corpus is empty"):
        _load(plain | {"corpus": {}})
    for score in (float("inf"), float("nan"), "high"):
        with pytest.raises(
            DataError, match=r"^the qrels, record 1: judgements must be .* \(a finite number\), not {'q"
        ):
            _load(plain | {"qrels": {"q1": {"d1": score}}})
    tabs = {"corpus": {"a\tb": "the train", "b": "the museum"}, "queries": {"q\n1": "x"}, "qrels": {"q\n1": ["a\tb"]}}
    assert _load(tabs)[0].relevant == [{0: 1.0}]
    with pytest.raises(
        DataError, match=r"^the corpus, record \d: text is \[\['lone surrogate: <U\+D83D>'\]\], not a te"
    ):
        _load(plain | {"corpus": texts | {"d2": "\ud83d"}})
    with pytest.raises(DataError, match="qrels is a mapping from the id of a query to .*, not 7"):
        _load(plain | {"qrels": 7})
    with pytest.raises(DataError, match="^the qrels of 'q1': no _id 'd999' in the corpus: add its record"):
        _load(plain | {"qrels": {"q1": ["d999"]}})
    with pytest.raises(
        DataError, match="^the qrels of 'd1': .* in the queries: the ids of query and document are exchanged"
    ):
        _load(plain | {"qrels": {"d1": ["q1"]}})
    with pytest.raises(DataError, match="or records with query-id and corpus-id, and perhaps score, not .query, doc"):
        _load(plain | {"qrels": [{"query": "q1", "doc": "d1"}]})
    for part in ("a text", ("a", "b")):
        with pytest.raises(DataError, match=r"^the corpus, record 1 is .*: give a record with columns"):
            _load(plain | {"corpus": [part]})
    with pytest.raises(DataError, match="^queries is a path: give records, or in place of the collection the folder"):
        _load(plain | {"queries": "queries.jsonl"})
    with pytest.raises(DataError, match="^the qrels, record 1 is"):
        _load(plain | {"qrels": [("q1", "d1")]})
    with pytest.raises(DataError, match=r"^the corpus, record 2: no field _id: rename the one that has it"):
        _load(plain | {"corpus": [corpus[0], {"text": "a"}]})
    missing = [record | {"language": float("nan")} for record in corpus]
    assert {*_load({"corpus": missing, "queries": queries, "qrels": qrels})[0].document_languages} == {"und"}
    with pytest.raises(DataError, match="a collection in memory has corpus, queries and qrels, not corpus"):
        evaluate(MODEL, {"retrieval": {"corpus": texts}})


def test_each_query_has_the_rank_of_the_right_document_and_what_was_found_first(tmp_path: Path) -> None:
    judged = _judgements()
    evaluation = evaluate({"one": MODEL, "same": MODEL}, {"retrieval": _folder(tmp_path, judged)})
    items, scores = evaluation.items(), evaluation.to_pandas()
    assert [*items.model.unique()] == ["one", "same"] and len(items) == 2 * 11
    for code, of_language in items[items.model == "one"].groupby("language"):
        figures = scores[(scores.model == "one") & (scores.of == code)].set_index("metric").score
        for metric in ("ndcg", "mrr", "recall_10", "recall", "own"):
            assert of_language[metric].mean() == pytest.approx(figures[metric], abs=1e-4)
    vectors = {name: _encode([f"text {name}"])[0] for name in (*(f"d{n}" for n in range(150)), *items.item)}
    vectors = {name: vector / np.linalg.norm(vector) for name, vector in vectors.items()}
    for item in items.itertuples():
        right = {document for (query, document), score in judged.items() if query == item.item and score}
        ranking = sorted((f"d{n}" for n in range(150)), key=lambda name, item=item: -vectors[item.item] @ vectors[name])
        rank = next(place for place, name in enumerate(ranking, 1) if name in right)
        assert (item.rank, item.right_id, item.found_id) == (rank, ranking[rank - 1], ranking[0])
        assert [item.text, item.right, item.found] == [
            f"text {name}" for name in (item.item, item.right_id, ranking[0])
        ]
        assert item.correct == (rank == 1) and item.language == CODES[int(item.item[1:]) % 3]


def test_a_right_document_that_is_not_among_the_nearest_is_named(tmp_path: Path) -> None:
    texts = ["Wo", *(f"text {number}" for number in range(150))]
    vectors = {text: [1.0, 0.0] if text.startswith("text") else [-1.0, 0.0] for text in texts} | {"query": [1.0, 0.0]}
    corpus = [{"_id": str(number), "text": text} for number, text in enumerate(texts)]
    folder = _write(tmp_path, corpus, [{"_id": "q", "text": "query"}], "q\t0\t1\n")
    model = SimpleNamespace(encode=lambda texts, **_: np.array([vectors[text] for text in texts]))
    evaluation = evaluate(model, {"retrieval": folder}, page=tmp_path / "page.html")
    (item,) = evaluation.items().itertuples()
    assert (item.right, item.right_id, item.found, item.correct) == ("Wo", "0", "text 0", False) and item.rank is None
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "1 of 1 texts for which not the right one was found first" in page
    assert "text 0 (the right one: beyond 100)" in page
    lines = f"""was found first (all: {tmp_path / "page.html"}, in Python items())
  q und: query (right: Wo)
    SimpleNamespace finds: text 0 (the right one: beyond 100)
"""
    assert lines in str(evaluation)


def test_a_wrong_language_and_an_empty_document_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    german = "Wo kann ich am Sonntag parken, und was kostet das Parken vor dem Bahnhof in der Nacht?"
    corpus = [{"_id": "a", "text": " ", "language": "en"}, {"_id": "b", "text": "A car park.", "language": "en"}]
    queries = [{"_id": str(n), "text": f"{german} {n}", "language": "sw"} for n in range(3)]
    folder = _write(tmp_path, corpus, queries, "0\tb\t1\n1\tb\t1\n2\tb\t1\n")
    (collection,) = load_collection(folder)
    assert f"{folder}: the queries in Swahili seem to be German: check their field language" in caplog.text
    task = RetrievalTask([collection])
    (note,) = task.notes
    assert note.startswith("retrieval: 1 of 2 documents have no text ('a'): remove them")
    vectors = {"": [1.0, 0.0], "A car park.": [0.0, 1.0]}
    scores = task.score(lambda texts: np.array([vectors.get(text, [1.0, 0.5]) for text in texts]))
    assert "an empty text (the right one: 2)" in str(failing({"m": [*task.items(scores.outcomes)]}, 9, 9))


def test_a_query_with_a_zero_vector_finds_nothing_and_a_document_with_one_is_the_last(tmp_path: Path) -> None:
    vectors = {"": [0, 0], "near": [1, 0], "far": [-1, 0.1], "farther": [-1, 0], "q": [1, 0]}
    corpus = [("empty", ""), ("n", "near"), ("f", "far"), ("f", ""), ("farther", "farther")]
    records = [[{"_id": name, "text": text} for name, text in side] for side in (corpus, [("q", "q"), ("zero", "")])]
    folder = _write(tmp_path, *records, "q\tf\t1\nzero\tempty\t1\nzero\tf\t1\n")
    model = SimpleNamespace(encode=lambda texts, **_: np.array([vectors[text] for text in texts], dtype=np.float32))
    evaluation = evaluate(model, {"retrieval": folder})
    found, nothing = evaluation.items().to_dict("records")
    assert (found["rank"], found["found"], found["right"], found["mrr"]) == (2, "near", "far", 50)
    assert all(pandas.isna(nothing[name]) for name in ("found", "found_id", "found_language", "rank"))
    assert (nothing["correct"], nothing["own_language"], nothing["ndcg"], nothing["mrr"]) == (False, False, 0, 0)
    assert evaluation.reports[0].groups["all"]["mrr"] == 25
    assert "no text: the vector is zero" in str(evaluation) and "beyond 100" not in str(evaluation)
    nearest = module.nearest_documents(np.array([[1.0, 0.0]]), ["", "far", "near"], range(3), model.encode, 3)
    assert nearest.tolist() == [[2, 1, 0]]
