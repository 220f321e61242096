"""Optimizer steps of DPO, ORPO, CPO, SimPO, KTO and distillation (GKD) by TRL 1.16.0, from a given adapter, in f32 on the CPU.

Usage: trl_preference.py MODEL ADAPTER_DIR OUT.json [--make] [--only NAME,…] [--steps 6] [--batch 4] [--rank 8] [--rate 1e-4] [--sgd] [--bf16 | --f64]
`--bf16` keeps the model in bf16 and computes under autocast, with an adapter in f32. `--f64` computes all in f64: how far the
peer's own f32 is from that bounds what two programs in f32 can agree in. `--sgd` updates by plain gradient descent: AdamW makes
steps of full size of gradients that are nearly 0, so that after its first step two programs in f32 differ by their rounding.
`--make` first writes a fresh adapter with random A *and* B to ADAPTER_DIR, so that no gradient is zero.
The records are those of pairs.jsonl beside this file, in its order; KTO takes every even line's chosen answer as a good one
and every odd line's rejected answer as a bad one. GKD takes the chosen answers and the model without the adapter as teacher;
`gkd-own` learns from completions that the model writes greedily. Compare with tunebox by compare_preference.py.
Needs trl==1.16.0 beside requirements.txt.
"""
import argparse, json, os
import torch
from datasets import Dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from torch.utils.data import SequentialSampler
import peft, random_adapter, shared, transformers, trl
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.gkd import GKDConfig, GKDTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

p = argparse.ArgumentParser()
p.add_argument("model"); p.add_argument("adapter"); p.add_argument("out"); p.add_argument("--make", action="store_true")
p.add_argument("--only", default="dpo,orpo,cpo,simpo,kto,gkd-forward,gkd-mixed,gkd-reverse,gkd-own"); p.add_argument("--steps", type=int, default=6)
p.add_argument("--batch", type=int, default=4); p.add_argument("--rank", type=int, default=8); p.add_argument("--rate", type=float, default=1e-4)
p.add_argument("--sgd", action="store_true"); p.add_argument("--bf16", action="store_true"); p.add_argument("--f64", action="store_true")
a = p.parse_args()
HERE = os.path.dirname(os.path.abspath(__file__))
PAIRS = [json.loads(line) for line in open(os.path.join(HERE, "pairs.jsonl"))]
LABELED = [{"prompt": r["prompt"], "completion": r["rejected" if i % 2 else "chosen"], "label": i % 2 == 0} for i, r in enumerate(PAIRS)]
RUNS = {
    "dpo": (DPOTrainer, DPOConfig, PAIRS, dict(beta=0.1)),
    "orpo": (ORPOTrainer, ORPOConfig, PAIRS, dict(beta=0.1)),
    "cpo": (CPOTrainer, CPOConfig, PAIRS, dict(beta=0.1)),
    "simpo": (CPOTrainer, CPOConfig, PAIRS, dict(loss_type="simpo", cpo_alpha=0.0, beta=2.5, simpo_gamma=1.375)),
    "kto": (KTOTrainer, KTOConfig, LABELED, dict(beta=0.1, undesirable_weight=1.33)),
    "gkd-forward": (GKDTrainer, GKDConfig, PAIRS, dict(beta=0.0, lmbda=0.0)),
    "gkd-mixed": (GKDTrainer, GKDConfig, PAIRS, dict(beta=0.5, lmbda=0.0)),
    "gkd-reverse": (GKDTrainer, GKDConfig, PAIRS, dict(beta=1.0, lmbda=0.0)),
    "gkd-own": (GKDTrainer, GKDConfig, PAIRS, dict(beta=0.5, lmbda=1.0, max_new_tokens=16)),
}
tokenizer = AutoTokenizer.from_pretrained(a.model)
tokenizer.bos_token = None


def collate(records):
    """The rows that tunebox makes of a prompt and a completion, for GKD, whose own collator takes conversations alone."""
    rows = [tokenizer(r["prompt"] + r["chosen"]).input_ids + [tokenizer.eos_token_id] for r in records]
    # A prompt whose last tokens the completion changes ends before them.
    prompts = [os.path.commonprefix([tokenizer(r["prompt"]).input_ids, row]) for r, row in zip(records, rows)]
    def pad(lists, value, left):
        fill = lambda l: [value] * (max(map(len, lists)) - len(l))
        return torch.tensor([fill(l) + l if left else l + fill(l) for l in lists])

    labels = [[-100] * len(p) + r[len(p):] for p, r in zip(prompts, rows)]
    ones = lambda lists: [[1] * len(l) for l in lists]
    return {"input_ids": pad(rows, tokenizer.pad_token_id, False), "attention_mask": pad(ones(rows), 0, False), "labels": pad(labels, -100, False),
            "prompts": pad(prompts, tokenizer.pad_token_id, True), "prompt_attention_mask": pad(ones(prompts), 0, True)}


def base():
    return AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16 if a.bf16 else torch.float64 if a.f64 else torch.float32)


if a.make:
    random_adapter.make(base, a.adapter, a.rank)

found = {"versions": {m.__name__: m.__version__ for m in (trl, transformers, peft, torch)}, "steps": a.steps, "batch": a.batch, "rate": a.rate, "optimizer": "sgd" if a.sgd else "adamw",
         "methods": json.load(open(a.out))["methods"] if os.path.exists(a.out) else {}}
for name in a.only.split(","):
    Trainer, Config, records, more = RUNS[name]
    model = PeftModel.from_pretrained(base(), a.adapter, is_trainable=True)
    model = model.double() if a.f64 else model
    config = Config(output_dir="/tmp/trl-" + name, per_device_train_batch_size=a.batch, max_steps=a.steps, learning_rate=a.rate, lr_scheduler_type="linear",
                    logging_steps=1, save_strategy="no", report_to="none", use_cpu=True, bf16=a.bf16, gradient_checkpointing=False, max_grad_norm=1.0,
                    optim="sgd" if a.sgd else "adamw_torch", weight_decay=0.0, max_length=512, seed=0, **more)
    taught = dict(teacher_model=base(), data_collator=collate) if Trainer is GKDTrainer else {}
    trainer = Trainer(model=model, args=config, train_dataset=Dataset.from_list(records), processing_class=tokenizer, **taught)
    if taught:
        trainer.generation_config.do_sample = False
        # Else the sum over own completions would be divided by the number of tokens of the data's answers.
        trainer.model_accepts_loss_kwargs = False
    trainer._get_train_sampler = lambda *_: SequentialSampler(trainer.train_dataset)
    losses, steps = shared.train_by_trl(trainer)
    found["methods"][name] = {"loss": losses, "gradient-norm": [float(step["grad_norm"]) for step in steps]}
    json.dump(found, open(a.out, "w"), indent=1)
    print(name, found["methods"][name], flush=True)
    del trainer, model
