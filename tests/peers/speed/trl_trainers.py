"""TRL's own trainers at their defaults on the CPU, with a LoRA of PEFT.

Usage: trl_trainers.py sft|dpo|grpo MODEL RECORDS.jsonl [--batch 4] [--completions 8] [--tokens 64] [--precision default|f32]
One pass over the records: answers (`prompt`, `completion`), pairs (`prompt`, `chosen`, `rejected`) or prompts. A batch of
`grpo` is so many prompts, each with its completions. TRL's defaults include gradient checkpointing and bf16 by autocast,
which `f32` switches off. Prints the seconds of every step but the first, and what a step holds.
"""
import argparse, os, tempfile, time
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
import datasets, transformers, trl
import peer, rewards

p = argparse.ArgumentParser()
p.add_argument("kind", choices=["sft", "dpo", "grpo"]); p.add_argument("model"); p.add_argument("records")
p.add_argument("--batch", type=int, default=4); p.add_argument("--completions", type=int, default=8)
p.add_argument("--tokens", type=int, default=64); p.add_argument("--precision", choices=["default", "f32"], default="default")
a = p.parse_args()


class Clock(transformers.TrainerCallback):
    """When each step ended."""

    def __init__(self):
        self.ends = []

    def on_step_end(self, *_, **__):
        self.ends.append(time.perf_counter())


def written(trainer):
    """Mean tokens of a completion over all steps, as TRL logs it."""
    found = [entry["completions/mean_length"] for entry in trainer.state.log_history if "completions/mean_length" in entry]
    return {"mean_length": sum(found) / len(found)} if found else {}


with tempfile.TemporaryDirectory() as folder:
    common = dict(output_dir=folder, num_train_epochs=1, logging_steps=1, save_strategy="no", report_to="none", use_cpu=True,
                  learning_rate=peer.RATE, per_device_train_batch_size=a.batch, disable_tqdm=True)
    if a.precision == "f32":
        common["bf16"] = False
    records = datasets.load_dataset("json", data_files=a.records, split="train", cache_dir=folder)
    more = {}
    if a.kind == "sft":
        Trainer, settings = trl.SFTTrainer, trl.SFTConfig(**common)
    elif a.kind == "dpo":
        Trainer, settings = trl.DPOTrainer, trl.DPOConfig(**common)
    else:
        common["per_device_train_batch_size"] = a.batch * a.completions
        Trainer = trl.GRPOTrainer
        settings = trl.GRPOConfig(**common, num_generations=a.completions, max_completion_length=a.tokens)
        more = {"reward_funcs": lambda completions, **_: [rewards.of(text) for text in completions]}
    clock = Clock()
    trainer = Trainer(model=peer.base(a.model), args=settings, train_dataset=records, processing_class=peer.tokenizer(a.model),
                      peft_config=peer.lora(), callbacks=[clock], **more)
    trainer.train()
    seconds = [after - before for before, after in zip(clock.ends, clock.ends[1:])]
    peer.say(seconds=seconds, batch=a.batch, bf16=settings.bf16, versions={"trl": trl.__version__}, **written(trainer))
