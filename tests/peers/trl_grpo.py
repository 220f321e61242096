"""The first step of GRPO by TRL 1.16.0 on fixed completions, from a given adapter, in f32 and in bf16 on the CPU.

Usage: trl_grpo.py MODEL ADAPTER_DIR OUT.json [--make] [--rank 8]
`--make` first writes a fresh adapter with random A *and* B to ADAPTER_DIR, so that no gradient is zero.
The completions below go through TRL's own pipeline: rollout, rewards, advantages, loss, clipping. The reference is the
base model (TRL would copy a given adapter as its reference, which makes the divergence 0 on the first step). bf16 is autocast,
the default of TRL. OUT.json
holds ids, rewards, losses and gradient norms; tests/policy_gradient.rs runs the component on the same ids with
TUNEBOX_PEER_MODEL and TUNEBOX_PEER_ADAPTER set. Needs trl==1.16.0 beside requirements.txt.
"""
import argparse, itertools, json, os
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
import peft, transformers, trl
from trl import GRPOConfig, GRPOTrainer

p = argparse.ArgumentParser()
p.add_argument("model"); p.add_argument("adapter"); p.add_argument("out"); p.add_argument("--make", action="store_true")
p.add_argument("--rank", type=int, default=8)
a = p.parse_args()
PROMPTS = ["What is 17 + 25? Answer:", "Name a colour of the sky:"]
COMPLETIONS = [[" 42", " 32, I think."], [" blue on a clear day", " red"]]
REWARDS = [[1.0, 0.0], [0.75, 0.25]]
LONGEST = 8
tokenizer = AutoTokenizer.from_pretrained(a.model)
base = lambda: AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32)

if a.make:
    torch.manual_seed(0)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = get_peft_model(base(), LoraConfig(r=a.rank, lora_alpha=2 * a.rank, target_modules=targets, task_type="CAUSAL_LM"))
    for name, parameter in model.named_parameters():
        if "lora_B" in name: torch.nn.init.normal_(parameter, std=0.01)
    model.save_pretrained(a.adapter)

prompt_ids = [tokenizer(text)["input_ids"] for text in PROMPTS]
completion_ids = [[tokenizer(text)["input_ids"] + [tokenizer.eos_token_id] for text in group] for group in COMPLETIONS]


def rollout(prompts, trainer):
    seen, out = {}, {"prompt_ids": [], "completion_ids": [], "logprobs": []}
    for prompt in prompts:
        group = PROMPTS.index(prompt)
        number = seen[group] = seen.get(group, -1) + 1
        ids = completion_ids[group][number]
        out["prompt_ids"].append(prompt_ids[group]); out["completion_ids"].append(ids); out["logprobs"].append([0.0] * len(ids))
    return out


def reward(prompts, completion_ids, **_):
    flat = {tuple(ids): r for ids_of, rewards in zip(globals()["completion_ids"], REWARDS) for ids, r in zip(ids_of, rewards)}
    return [flat[tuple(ids)] for ids in completion_ids]


found = {"versions": {m.__name__: m.__version__ for m in (trl, transformers, peft, torch)}, "prompts": prompt_ids, "completions": completion_ids,
         "rewards": REWARDS, "longest": LONGEST, "runs": []}
for loss, beta, compute in itertools.product(("grpo", "dapo", "dr_grpo"), (0.0, 0.04), ("f32", "bf16")):
    model = PeftModel.from_pretrained(base(), a.adapter, is_trainable=True)
    config = GRPOConfig(output_dir="/tmp/trl-grpo", per_device_train_batch_size=4, num_generations=2, max_steps=1, learning_rate=1e-4, logging_steps=1,
                        save_strategy="no", report_to="none", use_cpu=True, bf16=compute == "bf16", gradient_checkpointing=False, max_grad_norm=1.0, seed=0,
                        shuffle_dataset=False, loss_type=loss, beta=beta, max_completion_length=LONGEST, temperature=1.0)
    trainer = GRPOTrainer(model=model, reward_funcs=reward, args=config, train_dataset=Dataset.from_list([{"prompt": text} for text in PROMPTS]),
                          processing_class=tokenizer, rollout_func=rollout)
    if "ref" in trainer.model.peft_config: trainer.model.delete_adapter("ref")
    losses, compute_loss = [], trainer._compute_loss

    def recorded(*arguments, **named):
        losses.append(compute_loss(*arguments, **named))
        return losses[-1]

    trainer._compute_loss = recorded
    trainer.train()
    log = next(entry for entry in trainer.state.log_history if "grad_norm" in entry)
    found["runs"].append({"loss-type": loss, "beta": beta, "compute": compute, "loss": float(losses[0]), "gradient-norm": float(log["grad_norm"]),
                          "kl": log.get("kl"), "entropy": log["entropy"]})
    print(found["runs"][-1], flush=True)
    json.dump(found, open(a.out, "w"))
    del trainer, model
