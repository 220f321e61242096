//! Values of settings as other trainers write them, and the value that means the same here.

/// A setting whose values have other names elsewhere: its dotted key, and the hint and names of each value. A name is
/// in lower case with `-` for `_`; one that ends in `*` stands for all names that begin so.
type Choices = (&'static str, &'static [(&'static str, &'static [&'static str])]);

/// Every setting whose values have other names in other trainers.
pub(super) const CHOICES: &[Choices] = &[
    (
        "train.optimizer",
        &[
            ("did you mean `adamw-8bit`?", &["paged-adamw-8bit", "adamw-bnb-8bit", "adam-8bit", "adam8bit"]),
            ("did you mean `adamw`?", &["adam", "adamw-*", "paged-adamw*", "fused-adamw"]),
            ("did you mean `lion`?", &["lion-*", "paged-lion*"]),
            (
                "no optimizer here is like it: `adamw-8bit` has the least state of the Adams",
                &["adafactor", "galore-*", "apollo*"],
            ),
        ],
    ),
    (
        "train.compute",
        &[
            ("did you mean `bf16`?", &["bfloat16", "torch.bfloat16"]),
            ("did you mean `f32`?", &["fp32", "float32", "torch.float32", "tf32", "float", "no"]),
            ("take `bf16`: nothing is computed in this format", &["fp16", "float16", "half", "fp8"]),
        ],
    ),
    (
        "model.precision",
        &[
            ("did you mean `nf4`?", &["4bit", "4-bit", "int4", "fp4", "bnb-4bit", "bnb", "bitsandbytes", "qlora"]),
            ("did you mean `q8_0`?", &["8bit", "8-bit", "int8", "bnb-8bit", "q8"]),
            ("did you mean `stored`?", &["bf16", "fp16", "f16", "16bit", "16-bit", "f32", "fp32", "none", "auto"]),
            (
                "a model in this format is a `.gguf` file: name that as the model",
                &["q2-k*", "q3-k*", "q4-*", "q5-*", "q6-k"],
            ),
            (
                "take `nf4` or `q8_0`, and the model as it was before it was quantized",
                &["gptq", "awq", "hqq", "aqlm", "eetq", "fp8", "mxfp4", "torchao"],
            ),
        ],
    ),
    (
        "train.adapter.kind",
        &[
            ("take `lora`, and `model.precision = \"nf4\"`", &["qlora"]),
            ("did you mean `full`?", &["none", "full-finetune", "full-parameter"]),
            ("take `lora`, and set `initialize`", &["pissa", "olora"]),
            ("take `full`, or `lora` with `layers` and `modules-to-save`", &["freeze"]),
        ],
    ),
    (
        "train.adapter.initialize",
        &[
            ("did you mean `random`?", &["true", "gaussian", "default", "kaiming"]),
            ("did you mean `pissa`?", &["pissa-*"]),
            ("`pissa` is the nearest, also with `model.precision = \"nf4\"`", &["loftq", "eva", "corda"]),
        ],
    ),
    (
        "train.schedule",
        &[
            ("did you mean `cosine-with-min-rate`?", &["cosine-with-min-lr"]),
            ("did you mean `cosine-warmup-with-min-rate`?", &["cosine-warmup-with-min-lr"]),
            ("did you mean `linear-with-min-rate`?", &["linear-with-min-lr"]),
            ("did you mean `warmup-stable-decay`?", &["wsd", "warmup-stable-decay"]),
            ("did you mean `cosine`? `train.warmup` is a key of its own", &["one-cycle", "onecycle", "cosine-*"]),
            ("did you mean `linear`?", &["linear-schedule", "linear-decay"]),
        ],
    ),
    (
        "train.device",
        &[("did you mean `cuda`?", &["gpu", "nvidia", "rocm"]), ("did you mean `metal`?", &["mps", "apple", "mlx"])],
    ),
    ("train.adapter.targets", &[("did you mean `all-linear`?", &["all", "linear", "all-linear-layers", "auto"])]),
];
