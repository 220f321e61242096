//! Keys of other trainers that no key of a run file stands for, with what to do instead.

/// What to do instead of setting a key, and the names of the key, in lower case with `-` for `_`. A name that ends in
/// `*` stands for all names that begin so.
pub(super) const ADVICE: &[(&str, &[&str])] = &[
    (
        "only answers are trained on; a record with `text` is trained on as a whole",
        &["train-on-inputs", "train-on-prompt", "mask-prompt", "completion-only-loss", "assistant-only-loss"],
    ),
    (
        "every answer of the assistant is trained on, with the token that ends it, but one with `\"weight\": 0`",
        &["roles-to-train", "train-on-eos", "train-on-eot", "message-field-training"],
    ),
    (
        "attention is fused and kernels are on everywhere; there is nothing to choose",
        &[
            "flash-attention*",
            "flash-attn*",
            "attn-implementation",
            "xformers-attention",
            "sdp-attention",
            "use-liger-kernel",
            "enable-liger-kernel",
            "liger-*",
            "use-unsloth*",
            "unsloth-*",
            "torch-compile*",
            "cut-cross-entropy",
            "tf32",
        ],
    ),
    (
        "`mpirun -n 4 tunebox train run.toml`, `srun` and `torchrun` divide a run among processes, of which each holds \
         the whole model; on the CPU only",
        &[
            "deepspeed*",
            "fsdp*",
            "ddp-*",
            "tensor-parallel-size",
            "context-parallel-size",
            "sequence-parallel-*",
            "pipeline-parallel-size",
            "num-processes",
            "nproc-per-node",
            "num-gpus",
            "local-rank",
        ],
    ),
    (
        "`metrics.jsonl` of the run holds every metric, from which W&B, trackio or MLflow log by their own client \
         (example `1-first-adapter`); `run.tensorboard = true` writes them for TensorBoard",
        &["wandb*", "mlflow*", "comet-*", "use-swanlab", "swanlab-*", "trackio*", "project-name", "use-wandb"],
    ),
    ("`report.html` of the run plots every metric", &["plot-loss", "logging-first-step"]),
    (
        "nothing is uploaded: `tunebox export RUN --to peft` or `--to hf` writes a folder for `hf upload`",
        &["push-to-hub*", "hub-*", "export-hub-model-id", "push-dataset-to-hub", "upload", "publish"],
    ),
    ("`tunebox export RUN --to gguf` (or `hf`, `ollama`, `mlx`) writes the result", &["export-*", "merge-lora"]),
    ("no code of a model's folder is ever executed", &["trust-remote-code"]),
    (
        "messages are written by the chat template of the model's files, or that of `model.chat-template`",
        &["tool-format", "default-system"],
    ),
    (
        "variables of the chat template are the field `chat_template_kwargs` of a record",
        &["enable-thinking", "reasoning-effort"],
    ),
    (
        "the tokenizer is that of the model's files, and its vocabulary stays as it is",
        &["tokenizer-*", "special-tokens", "tokens", "added-tokens*", "add-tokens", "resize-vocab", "eos-token"],
    ),
    ("`data.validation = 0.1` holds back a tenth of the records for validation; it may also name a file", &["do-eval"]),
    (
        "`tunebox train runs/NAME/run.toml --resume` resumes a run",
        &["resume-from-checkpoint", "auto-resume-from-checkpoints"],
    ),
    ("a run never replaces another: each has a folder of its own", &["overwrite-output-dir", "overwrite-cache"]),
    (
        "data is read as a stream and kept as tokens; there is nothing to set",
        &[
            "dataset-prepared-path",
            "dataset-processes",
            "dataset-num-proc",
            "dataset-keep-in-memory",
            "preprocessing-*",
            "dataloader-*",
            "num-workers",
            "remove-unused-columns",
            "streaming",
        ],
    ),
    (
        "`data.files = [{ path = \"FILE\", weight = 0.1 }]` reads a tenth of the records",
        &["max-samples", "max-train-samples"],
    ),
    (
        "`data.packing = true` fills micro-batches with examples, and none sees another",
        &["group-by-length", "pad-to-sequence-len", "padding-free", "packing-strategy", "eval-sample-packing"],
    ),
    (
        "name the folder of the data set: `hf://datasets/OWNER/NAME/FOLDER`",
        &["dataset-config", "dataset-config-name", "subset"],
    ),
    ("the scaling of RoPE is that of the model's files", &["rope-scaling", "rope-theta", "max-position-embeddings"]),
    (
        "`train.recompute = true` saves memory of activations; nothing is offloaded",
        &["activation-offloading", "cpu-offload", "offload-*"],
    ),
    (
        "`train.optimizer = \"adamw-8bit\"`, an adapter, and `model.precision = \"nf4\"` save memory here",
        &[
            "galore-*",
            "use-galore",
            "lisa-*",
            "use-badam",
            "badam-*",
            "use-apollo",
            "apollo-*",
            "use-adam-mini",
            "relora*",
        ],
    ),
    (
        "a run has one rate, `train.rate`; `train.b-rate-ratio` multiplies that of the factors B (LoRA+)",
        &["embedding-learning-rate", "embedding-lr", "lr-groups"],
    ),
    (
        "`train.adapter.initialize = \"pissa\"` is the nearest, also with `model.precision = \"nf4\"`",
        &["loftq-config", "use-loftq"],
    ),
    (
        "rewards come from `[[verifier]]` tables: `use = \"number\"`, a component, or `use = \"model:PATH\"` for a \
         reward model; each has a `weight`",
        &["reward-funcs", "reward-model*", "reward-weights", "reward-processing-classes"],
    ),
    (
        "completions are generated by the run itself; there is no server to set up",
        &["use-vllm", "vllm-*", "gpu-memory-utilization", "fast-inference", "infer-backend"],
    ),
    (
        "`method.loss` of `dpo` adds the loss of the chosen answers: `\"sigmoid 1.0, sft 0.2\"`",
        &["rpo-alpha", "pref-ftx"],
    ),
    (
        "text alone is trained on: images, video and audio are not read",
        &["image-*", "video-*", "freeze-vision-tower", "freeze-vit", "finetune-vision-layers", "max-pixels"],
    ),
    ("an adapter is what is trained unless `train.adapter.kind` is `full`", &["use-peft", "use-lora", "do-train"]),
];
