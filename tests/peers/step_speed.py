"""How long a supervised LoRA step of PyTorch + transformers + PEFT takes on the CPU, and how much memory.

Usage: step_speed.py MODEL_DIR [--batch 4] [--sequence 256] [--rank 16] [--steps 5]
Rows of seeded random tokens, every token a label; adapters on all seven products of a block, weights and arithmetic in
f32, AdamW, gradients clipped at 1. One step warms up and is not timed. Prints one line of JSON with the names of
`tunebox bench --json`. Run it by side_by_side.py.
"""
import argparse, json, resource, statistics, sys, time
import peft, torch, transformers

p = argparse.ArgumentParser()
p.add_argument("model"); p.add_argument("--batch", type=int, default=4); p.add_argument("--sequence", type=int, default=256)
p.add_argument("--rank", type=int, default=16); p.add_argument("--steps", type=int, default=5)
a = p.parse_args()

torch.manual_seed(0)
base = transformers.AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32)
places = [f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")]
model = peft.get_peft_model(base, peft.LoraConfig(r=a.rank, lora_alpha=2 * a.rank, target_modules=places, task_type="CAUSAL_LM"))
trained = [weight for weight in model.parameters() if weight.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-4)
ids = torch.randint(0, base.config.vocab_size, (a.batch, a.sequence), generator=torch.Generator().manual_seed(1))
model.train()


def step():
    begun = time.perf_counter()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    loss.item()
    return time.perf_counter() - begun


step()
seconds = statistics.median(step() for _ in range(a.steps))
unit = 1 if sys.platform == "darwin" else 1024
print(json.dumps({
    "tokens_per_second": a.batch * a.sequence / seconds, "step_seconds": seconds, "threads": torch.get_num_threads(),
    "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
    "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__},
}))
