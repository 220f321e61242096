"""What every peer's process starts with and ends with: the adapted model, and its line of JSON.

Only peers import this file: it loads PyTorch.
"""
import contextlib, json, os, time
os.environ["HF_HUB_OFFLINE"] = "1"
import peft, torch, transformers

transformers.utils.logging.disable_progress_bar()

# The products of a block; what `all-linear` means to tunebox.
PLACES = [f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")]
RANK = 16
RATE = 1e-4
# Weights and arithmetic in f32; weights in bf16 and arithmetic under autocast; weights in f32 and arithmetic under autocast.
# Adapters are f32 in each.
PRECISIONS = ("f32", "bf16", "autocast")


def lora(rank=RANK):
    return peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=PLACES, task_type="CAUSAL_LM")


def base(folder, precision="f32"):
    """The model with SDPA attention, as transformers chooses by itself where it can."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)


def adapted(folder, precision="f32", rank=RANK, device="cpu", checkpointing=False):
    """The model with adapters on all seven products of a block, ready to train."""
    model = base(folder, precision).to(device)
    if checkpointing:
        model.config.use_cache = False
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    return peft.get_peft_model(model, lora(rank)).train()


def tokenizer(folder):
    found = transformers.AutoTokenizer.from_pretrained(folder)
    if found.pad_token_id is None:
        found.pad_token = found.eos_token
    return found


class Learner:
    """AdamW on what is trainable, gradients clipped at 1."""

    def __init__(self, model):
        self.trained = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=RATE)

    def learn(self, losses):
        """One update from the sum of losses, each made when the one before has gone backward."""
        for loss in losses:
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def compiled(model):
    """The model's forward pass by torch.compile, for rows of any length without compiling again."""
    return torch.compile(model, dynamic=True)


def arithmetic(precision, device="cpu"):
    """What a forward pass runs in: f32 as it is, or bf16 where PyTorch's autocast finds it right."""
    return contextlib.nullcontext() if precision == "f32" else torch.autocast(device, dtype=torch.bfloat16)


def timed(steps):
    """The seconds of each call, in order, up to the end of what it left to a GPU."""
    seconds = []
    for step in steps:
        begun = time.perf_counter()
        step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    return seconds


def timed_but_first(steps, compiled=False):
    """The seconds of each call. The first is made once before, to warm up; compiled, all are: the compiler meets every shape."""
    before = steps if compiled else steps[:1]
    return timed(before + steps)[len(before):]


def gpu_memory():
    """The most bytes that tensors took on the GPU, and that were kept for them; nothing without one."""
    if not torch.cuda.is_available():
        return {}
    return {"gpu_peak_bytes": torch.cuda.max_memory_allocated(), "gpu_reserved_bytes": torch.cuda.max_memory_reserved()}


def say(**figures):
    """The peer's one line. Its process's peak memory is read by who started it."""
    modules = [torch, transformers, peft]
    versions = {module.__name__: module.__version__ for module in modules}
    versions |= figures.pop("versions", {})
    libraries = {"MKL": torch.backends.mkl, "oneDNN": torch.backends.mkldnn}
    blas = [name for name, library in libraries.items() if library.is_available()]
    print(json.dumps({**figures, "threads": torch.get_num_threads(), "blas": " and ".join(blas), "versions": versions}))
