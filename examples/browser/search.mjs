// Search sentences as a user types: the model computes the embedding of the query in the browser.
import { AutoModel, AutoTokenizer, Tensor, env } from "@huggingface/transformers";

const RESULTS = 10;
const status = document.getElementById("status");
const query = document.getElementById("query");
const list = document.getElementById("results");

env.allowRemoteModels = false; // all files come from this site
env.allowLocalModels = true;
env.localModelPath = new URL(".", location.href).pathname;
env.backends.onnx.wasm.wasmPaths = env.localModelPath;
const { sentences, dimensions, prompt } = await (await fetch("sentences.json")).json();
const embeddings = new Float32Array(await (await fetch("embeddings.bin")).arrayBuffer());
const tokenizer = await AutoTokenizer.from_pretrained("model");
const model = await AutoModel.from_pretrained("model", { dtype: "q8" });

async function embed(text) {
  const ids = tokenizer.encode(prompt + text);
  const tensor = (values) => new Tensor("int64", BigInt64Array.from(values, BigInt), [1, ids.length]);
  const inputs = { input_ids: tensor(ids), attention_mask: tensor(ids.map(() => 1)) };
  return (await model(inputs)).sentence_embedding.data;
}

function nearest(embedding) {
  const length = Math.hypot(...embedding); // those of embeddings.bin have length 1
  const scores = sentences.map((_, row) => {
    let score = 0;
    for (let place = 0; place < dimensions; place++) score += embedding[place] * embeddings[row * dimensions + place];
    return [score / length, row];
  });
  return scores.sort((a, b) => b[0] - a[0]).slice(0, RESULTS);
}

let waiting = null; // the newest text, while the model computes an earlier one
let busy = false;

async function search() {
  waiting = query.value.trim();
  if (busy) return;
  busy = true;
  while (waiting !== null) {
    const text = waiting;
    waiting = null;
    const begin = performance.now();
    const found = text ? nearest(await embed(text)) : [];
    const items = found.map(([score, row]) => {
      const item = document.createElement("li");
      item.textContent = `${sentences[row]} (${score.toFixed(2)})`;
      return item;
    });
    list.replaceChildren(...items);
    if (text) status.textContent = `${(performance.now() - begin).toFixed(0)} ms for “${text}”`;
  }
  busy = false;
}

query.addEventListener("input", search);
await embed("warm up");
query.disabled = false;
status.textContent = `${sentences.length} sentences, loaded in ${(performance.now() / 1000).toFixed(1)} s`;
document.body.dataset.ready = "true";
