import json, sys, fnmatch
from pathlib import Path
import numpy as np, pytest
from hf_xsent import *
from hf_xsent.publishing.export_folder import encoding_facts, OF_EXPORTS
from hf_xsent.publishing.model_card import hub_language
from hf_xsent import SentenceEncoderForPreTraining, export_sentence_transformer, publish
from sentence_transformers import SentenceTransformer

def test_all(encoder_folders, tmp_path):
    m = SentenceEncoderForPreTraining.from_backbone(str(encoder_folders["bert"]))
    m.encode(["a dog", "the cat sits on the mat and the dog"])
    f = export_sentence_transformer(m, tmp_path / "e")
    t = json.loads((f / "tokenizer.json").read_text())
    print("TRUNC", t.get("truncation"), t.get("padding"))
    p = f / "config_sentence_transformers.json"
    c = json.loads(p.read_text()); print(c)
    c["prompts"] = {"query": "the dog: ", "document": "a "}; c["default_prompt_name"] = "query"
    p.write_text(json.dumps(c))
    print("FACTS", {k: encoding_facts(f)[k] for k in ("prompted", "prompt", "normalize", "dimensions")})
    e = SentenceEmbedder.from_pretrained(str(f)); print("PROMPT", repr(e.prompt))
    print(publish(str(f), "org/mine", license="mit", base_model="org/x", languages=["de"], dry_run=True))
    card = (f / "README.md").read_text()
    print("CARDPROMPT", "the dog" in card, "prefix" in card)
    # saved again in place by SentenceTransformer
    s = SentenceTransformer(str(f), device="cpu"); s.truncate_dim = 8
    s.save(str(f), create_model_card=False)
    print("FACTS2", {k: encoding_facts(f)[k] for k in ("prompted", "prompt", "normalize", "dimensions", "truncated")})
    for code in ("klingon", "xx", "deu", "zho_Hant", "sr-Latn", "mul", "multilingual", "pt-BR"):
        try: print(code, repr(hub_language(code)))
        except Exception as err: print(code, "ERR", err)
    raise SystemExit
