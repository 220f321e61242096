"""The first step of GRPO by TRL 1.16.0 on fixed completions, from a given adapter, in f32 and in bf16 on the CPU.

Usage: trl_grpo.py MODEL ADAPTER_DIR OUT.json [--make] [--rank 8]
`--make` first writes a fresh adapter with random A *and* B to ADAPTER_DIR, so that no gradient is zero.
The completions below go through TRL's own pipeline: rollout, rewards, advantages, loss, clipping. The reference is the
base model (TRL would copy a given adapter as its reference, which makes the divergence 0 on the first step). bf16 is autocast,
the default of TRL. All losses run on the first set of completions; the other sets are for the difference of bf16 to f32.
OUT.json holds ids, rewards, losses and gradient norms; tests/policy_gradient/peer.rs runs the component on the same ids with
TUNEBOX_PEER_MODEL and TUNEBOX_PEER_ADAPTER set. Needs trl==1.16.0 beside requirements.txt.
"""
import argparse, itertools, json, os
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
import torch
from datasets import Dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
import peft, random_adapter, shared, transformers, trl
from trl import GRPOConfig, GRPOTrainer

p = argparse.ArgumentParser()
p.add_argument("model"); p.add_argument("adapter"); p.add_argument("out"); p.add_argument("--make", action="store_true")
p.add_argument("--rank", type=int, default=8)
a = p.parse_args()
# Prompts of two completions each, with their rewards.
SETS = [
    {"What is 17 + 25? Answer:": [(" 42", 1.0), (" 32, I think.", 0.0)],
     "Name a colour of the sky:": [(" blue on a clear day", 0.75), (" red", 0.25)]},
    {"The capital of France is": [(" Paris.", 1.0), (" a large city", 0.5)],
     "def add(a, b):": [(" return a + b", 1.0), (" pass", 0.0)]},
    {"Three primes:": [(" 2, 3, 5", 1.0), (" 1, 4, 9", 0.0)],
     "The opposite of warm is": [(" cold", 0.8), (" not warm", 0.6)]},
    {"Water boils at": [(" 100 degrees", 0.9), (" the weekend", 0.1)],
     "A haiku has": [(" seventeen syllables", 1.0), (" words", 0.3)]},
    {"SELECT name FROM": [(" users;", 0.7), (" nowhere at all", 0.0)],
     "In winter, birds": [(" fly south", 1.0), (" read books", 0.2)]},
    {"for i in range(10):": [(" print(i)", 1.0), (" i = i", 0.4)],
     "She opened the door and": [(" went in.", 0.6), (" door door", 0.0)]},
    {"The square of 12 is": [(" 144", 1.0), (" 124", 0.0)],
     "Dear Sir or Madam,": [(" I write to", 0.9), (" hey", 0.1)]},
    {"An even number:": [(" 8", 1.0), (" seven", 0.0)],
     "To make tea,": [(" boil water first", 1.0), (" wait", 0.5)]},
]
LONGEST = 8
tokenizer = AutoTokenizer.from_pretrained(a.model)
base = lambda: AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32)

if a.make:
    random_adapter.make(base, a.adapter, a.rank)

ids_of = lambda text: tokenizer(text)["input_ids"]
ends = lambda text: ids_of(text) + [tokenizer.eos_token_id]


def written(fixed):
    """A set with ids in the place of texts: prompts, for each its completions, and their rewards."""
    return {"prompts": [ids_of(prompt) for prompt in fixed], "completions": [[ends(text) for text, _ in group] for group in fixed.values()],
            "rewards": [[reward for _, reward in group] for group in fixed.values()]}


def rollout_of(fixed):
    """TRL's rollout function that returns the completions of a set."""
    def rollout(prompts, trainer):
        seen, out = {}, {"prompt_ids": [], "completion_ids": [], "logprobs": []}
        for prompt in prompts:
            number = seen[prompt] = seen.get(prompt, -1) + 1
            ids = ends(fixed[prompt][number][0])
            out["prompt_ids"].append(ids_of(prompt)); out["completion_ids"].append(ids); out["logprobs"].append([0.0] * len(ids))
        return out
    return rollout


def reward_of(fixed):
    """TRL's reward function that returns the rewards of a set."""
    def reward(prompts, completion_ids, **_):
        flat = {(prompt, tuple(ends(text))): reward for prompt, group in fixed.items() for text, reward in group}
        return [flat[prompt, tuple(ids)] for prompt, ids in zip(prompts, completion_ids)]
    return reward


found = {"versions": {m.__name__: m.__version__ for m in (trl, transformers, peft, torch)}, "sets": [written(fixed) for fixed in SETS],
         "longest": LONGEST, "runs": []}
losses = [(0, loss, beta, "f32") for loss, beta in itertools.product(("grpo", "dapo", "dr_grpo"), (0.0, 0.04))]
formats = [(number, "dr_grpo", 0.04, compute) for number, compute in itertools.product(range(len(SETS)), ("f32", "bf16"))]
for number, loss, beta, compute in dict.fromkeys(losses + formats):
    fixed = SETS[number]
    model = PeftModel.from_pretrained(base(), a.adapter, is_trainable=True)
    config = GRPOConfig(output_dir="/tmp/trl-grpo", per_device_train_batch_size=4, num_generations=2, max_steps=1, learning_rate=1e-4, logging_steps=1,
                        save_strategy="no", report_to="none", use_cpu=True, bf16=compute == "bf16", gradient_checkpointing=False, max_grad_norm=1.0, seed=0,
                        shuffle_dataset=False, loss_type=loss, beta=beta, max_completion_length=LONGEST, temperature=1.0)
    trainer = GRPOTrainer(model=model, reward_funcs=reward_of(fixed), args=config, train_dataset=Dataset.from_list([{"prompt": text} for text in fixed]),
                          processing_class=tokenizer, rollout_func=rollout_of(fixed))
    if "ref" in trainer.model.peft_config: trainer.model.delete_adapter("ref")
    values, [log, *_] = shared.train_by_trl(trainer, "_compute_loss")
    found["runs"].append({"set": number, "loss-type": loss, "beta": beta, "compute": compute, "loss": values[0], "gradient-norm": float(log["grad_norm"]),
                          "kl": log.get("kl"), "entropy": log["entropy"]})
    print(found["runs"][-1], flush=True)
    json.dump(found, open(a.out, "w"))
    del trainer, model
