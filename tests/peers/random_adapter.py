"""A fresh adapter of PEFT for all linear maps, with random A *and* B, so that no gradient of its first step is zero."""
import torch
from peft import LoraConfig, get_peft_model

TARGETS = [f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")]


def make(load, folder, rank, **settings):
    """Writes the adapter to a folder, the same for the same model and rank, and returns the model with it. `load` returns the model."""
    torch.manual_seed(0)
    model = get_peft_model(load(), LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=TARGETS, task_type="CAUSAL_LM", **settings))
    for name, parameter in model.named_parameters():
        if "lora_B" in name: torch.nn.init.normal_(parameter, std=0.01)
    model.save_pretrained(folder)
    return model
