"""Updates of GRPO by TRL 1.16.0 on recorded completions, from a given adapter, in f32 or bf16 on the CPU.

Usage: trl_recorded_grpo.py MODEL ADAPTER_DIR RECORDS.jsonl OUT.json [--make TUNEBOX] [--bf16] [--steps 6] [--group 4] [--rank 8] [--rate 1e-4]
`--make` first writes a fresh adapter with random A *and* B to ADAPTER_DIR, so that no gradient is zero, and lets the program TUNEBOX
sample from it at temperature 1: for every second update one prompt of pairs.jsonl that ends with a line, and a group of completions of at
most 64 tokens. Their rewards are their shares of vowels. RECORDS gets each with `prompt`, `completion`, `advantage`, and in `logprob` the
log-probability of every token by PyTorch in f32. TRL's trainer takes these, twice in a row, in the place of its own rollout; loss (`dapo`, its default),
clipping and optimizer are TRL's. The reference is the initial adapter, scored in the number format of the run. `--bf16` keeps the model in
bf16 and computes under autocast, with an adapter in f32. OUT.json gets loss, gradient norm, KL and the share of clipped tokens of every
update. Needs trl==1.16.0 beside requirements.txt.
"""
import argparse, json, os, statistics, subprocess
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
import torch
from datasets import Dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
import random_adapter, shared

p = argparse.ArgumentParser()
p.add_argument("model"); p.add_argument("adapter"); p.add_argument("records"); p.add_argument("out"); p.add_argument("--make")
p.add_argument("--bf16", action="store_true"); p.add_argument("--steps", type=int, default=6); p.add_argument("--group", type=int, default=4)
p.add_argument("--rank", type=int, default=8); p.add_argument("--rate", type=float, default=1e-4)
a = p.parse_args()
PAIRS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pairs.jsonl")
LONGEST, PASSES = 64, 2
tokenizer = AutoTokenizer.from_pretrained(a.model)


def base(dtype):
    return AutoModelForCausalLM.from_pretrained(a.model, dtype=dtype)


def encode(record):
    """The ids of a record's prompt and of its completion with the end token."""
    prompt = tokenizer(record["prompt"])["input_ids"]
    ids = tokenizer(record["prompt"] + record["completion"])["input_ids"] + [tokenizer.eos_token_id]
    assert ids[:len(prompt)] == prompt, record
    return prompt, ids[len(prompt):]


def sample(prompt):
    """A group of texts. None begins with a space, which could become one token with the line end before it."""
    texts, seed = [], 0
    while len(texts) < a.group:
        ask = [a.make, "generate", os.path.abspath(a.model), prompt, "--adapter", os.path.abspath(a.adapter), "--raw", "--json", "--offline",
               "--temperature", "1", "--max-tokens", str(LONGEST), "--seed", str(seed)]
        text = json.loads(subprocess.run(ask, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])["text"].strip()
        texts, seed = texts + [text] * bool(text), seed + 1
    return texts


def score(model, record):
    """The log-probability of each token of the record's completion."""
    prompt, completion = encode(record)
    logits = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1:-1]
    return logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0].tolist()


@torch.no_grad()
def write_records(model):
    """Samples the groups, and writes the completions with their advantages and log-probabilities."""
    prompts = [json.loads(line)["prompt"] for line in open(PAIRS)]
    prompts = [prompt for prompt in prompts if prompt.endswith("\n")][:a.steps // PASSES]
    with open(a.records, "w") as file:
        for prompt in prompts:
            texts = sample(prompt)
            rewards = [sum(letter in "aeiou" for letter in text) / len(text) for text in texts]
            center, spread = statistics.mean(rewards), statistics.stdev(rewards) + 1e-4
            for text, reward in zip(texts, rewards):
                record = {"prompt": prompt, "completion": text, "advantage": (reward - center) / spread}
                file.write(json.dumps(record | {"logprob": score(model, record)}) + "\n")


def batch_of(records):
    """What TRL's rollout makes of a group of completions, without the reference's log-probabilities."""
    rows = [encode(record) for record in records]
    width = max(len(completion) for _, completion in rows)
    pad = lambda lists, value: torch.tensor([values + [value] * (width - len(values)) for values in lists])
    prompts, mask = torch.tensor([prompt for prompt, _ in rows]), pad([[1] * len(completion) for _, completion in rows], 0)
    return {"prompt_ids": prompts, "prompt_mask": torch.ones_like(prompts), "completion_ids": pad([completion for _, completion in rows], 0),
            "completion_mask": mask, "advantages": torch.tensor([record["advantage"] for record in records]),
            "old_per_token_logps": pad([record["logprob"] for record in records], 0.0), "num_items_in_batch": mask.sum()}


if a.make: write_records(random_adapter.make(lambda: base(torch.float32), a.adapter, a.rank).eval())
records = [json.loads(line) for line in open(a.records)]
model = PeftModel.from_pretrained(base(torch.bfloat16 if a.bf16 else torch.float32), a.adapter, is_trainable=True)
config = GRPOConfig(output_dir="/tmp/trl-recorded-grpo", per_device_train_batch_size=a.group, num_generations=a.group, max_steps=a.steps, learning_rate=a.rate,
                    lr_scheduler_type="linear", logging_steps=1, save_strategy="no", report_to="none", use_cpu=True, bf16=a.bf16, gradient_checkpointing=False,
                    max_grad_norm=1.0, weight_decay=0.0, seed=0, beta=0.04, loss_type="dapo", epsilon=0.2, temperature=1.0)
trainer = GRPOTrainer(model=model, reward_funcs=lambda completions, **_: [0.0] * len(completions), args=config,
                      train_dataset=Dataset.from_list([{"prompt": record["prompt"]} for record in records]), processing_class=tokenizer)
batches = [batch_of(records[start:start + a.group]) for start in range(0, len(records), a.group)]
for batch in batches:
    ids, mask = [torch.cat([batch[f"prompt_{kind}"], batch[f"completion_{kind}"]], 1) for kind in ("ids", "mask")]
    with torch.no_grad():
        batch["ref_per_token_logps"] = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, batch["completion_ids"].shape[1])[0]
coming = iter(batches * PASSES)
trainer._generate_and_score_completions = lambda _: next(coming)
losses, steps = shared.train_by_trl(trainer, "_compute_loss")
found = {"loss": losses} | {key: [float(step[name]) for step in steps] for key, name in
                            (("gradient-norm", "grad_norm"), ("kl", "kl"), ("clipped", "clip_ratio/region_mean"))}
json.dump(found, open(a.out, "w"), indent=1)
print(json.dumps(found))
