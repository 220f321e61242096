//! `tunebox export`: writes a run or a model in the format of another program, and proves that it is the same model.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use serde_json::json;
use tunebox_compute::DType;
use tunebox_foundation::files::Draft;
use tunebox_foundation::format::{bytes, number};
use tunebox_model::export::{self, Difference, Format, Quantization};

use crate::access::Access;
use crate::arguments::{Global, one_of};
use crate::model::ModelOptions;
use crate::run::summary::chat_command;
use crate::terminal::shell::quote;
use crate::terminal::{CommandResult, ExitStatus, Failure, Terminal};

#[derive(Debug, Args)]
pub(crate) struct Export {
    #[command(flatten)]
    model: ModelOptions,
    /// Format to write
    #[arg(long, value_name = "FORMAT")]
    to: Target,
    /// File or folder to write; it must not exist
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// Number format of the written weights [default: `q8_0` for `gguf` and `ollama`, `bf16` for `hf`]
    #[arg(
        long = "type",
        value_name = "TYPE",
        value_parser = one_of([
            ("f32", Quantization::F32), ("f16", Quantization::F16), ("bf16", Quantization::Bf16),
            ("q8_0", Quantization::Q8_0), ("q6_k", Quantization::Q6K), ("q5_k_m", Quantization::Q5KM),
            ("q4_k_m", Quantization::Q4KM),
        ])
    )]
    numbers: Option<Quantization>,
    /// What the child writes; the parent renames it once the child has proved it. Only in the parent.
    #[arg(skip)]
    draft: OnceLock<Draft>,
}

/// A format by the name of the program or library that reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Target {
    /// One GGUF file with the adapter merged, for llama.cpp, LM Studio and others
    Gguf,
    /// The adapter alone as a GGUF file, for llama.cpp's `--lora`
    GgufLora,
    /// A folder with a `Modelfile`, its chat template and the merged GGUF file, for `ollama create`
    Ollama,
    /// The adapter alone as a folder, for mlx-lm's `--adapter-path`
    Mlx,
    /// The adapter alone as a folder, for PEFT
    Peft,
    /// A folder with the adapter merged, tokenizer and configuration, for transformers, vLLM and others
    Hf,
}

impl Export {
    /// Fetches the model and returns the files that the command reads and the folder that it writes; `None` if it
    /// computes on an accelerator. In the parent, fails if options contradict each other or the output exists, and
    /// creates the draft of the output.
    pub(super) fn prepare(&self, global: &Global) -> Result<Option<Access>, Failure> {
        let format = self.format()?;
        if !global.supervised {
            check_output(&self.out, format)?;
        }
        let access = self.model.prepare(global)?;
        if !global.supervised {
            // It is the first draft: the command is prepared once.
            let _ = self.draft.set(Draft::begin(&self.out)?);
        }
        Ok(access.map(|access| Access { write: vec![Draft::path_for(&self.out)], ..access }))
    }

    /// Runs in the confined child process: writes the model into the draft beside `--out`, which the parent renames
    /// after success, compares it with the run's model, and shows the difference. Fails if the run wrote steering
    /// vectors, or if the difference is above the limit of the format.
    pub(crate) fn run(self, terminal: Terminal, global: &Global) -> CommandResult {
        let (format, to) = (self.format()?, self.to);
        let loaded = self.model.load_exactly(terminal, global)?;
        if loaded.vectors.is_some() {
            let hint =
                "`vectors.gguf` in its folder is a control vector for llama.cpp; `--base` exports the model alone";
            return Err(Failure::usage("a run of directions has no weights to export", hint));
        }
        let draft = Draft::path_for(&self.out);
        let name = self.out.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let difference = export::export(&loaded.policy, format, &draft, &name)?;
        show(terminal, to, format, &difference);
        Ok(ExitStatus::Success)
    }

    /// In the parent, after the child succeeded: moves the draft to the path of `--out`, and suggests what to type
    /// next. Does nothing if [`Export::prepare`] made no draft.
    pub(super) fn publish(mut self, terminal: Terminal) -> Result<(), Failure> {
        let Some(draft) = self.draft.take() else { return Ok(()) };
        if self.format()?.is_file() {
            draft.commit_file()?
        } else {
            draft.commit()?
        }
        terminal.status("Exported", format!("{}  {}", self.out.display(), bytes(size_of(&self.out))));
        if let Some(next) = next_command(self.to, &self.out) {
            terminal.suggest(next);
        }
        terminal.event(json!({ "event": "exported", "path": self.out, "format": self.to.name() }));
        Ok(())
    }

    /// Returns the format with its number format. Fails if `--type` is given for an adapter alone, or is a quantized
    /// format for `--to hf`.
    fn format(&self) -> Result<Format, Failure> {
        let quantized = self.numbers.unwrap_or(Quantization::Q8_0);
        match (self.to, self.numbers) {
            (Target::Gguf, _) => Ok(Format::Gguf(quantized)),
            (Target::Ollama, _) => Ok(Format::Ollama(quantized)),
            (Target::Hf, None | Some(Quantization::Bf16)) => Ok(Format::HuggingFace(DType::BF16)),
            (Target::Hf, Some(Quantization::F16)) => Ok(Format::HuggingFace(DType::F16)),
            (Target::Hf, Some(Quantization::F32)) => Ok(Format::HuggingFace(DType::F32)),
            (Target::Hf, Some(_)) => Err(Failure::usage(
                "`--to hf` has no such `--type`",
                "choose `f32`, `bf16` or `f16`, or quantize with `--to gguf`",
            )),
            (Target::GgufLora, None) => Ok(Format::GgufLora),
            (Target::Mlx, None) => Ok(Format::Mlx),
            (Target::Peft, None) => Ok(Format::Peft),
            (other, Some(_)) => Err(Failure::usage(
                format!("`--to {}` takes no `--type`: an adapter alone is small and keeps its numbers", other.name()),
                "leave `--type` out",
            )),
        }
    }
}

impl Target {
    /// Returns the value of `--to` that stands for this format.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Shows the difference between the export and the run's model in log-probabilities, in nats, with the limit of the
/// format. Emits a `compared` event.
fn show(terminal: Terminal, to: Target, format: Format, difference: &Difference) {
    let Difference { tokens, largest, mean } = *difference;
    let [most, average, limit] = [largest, mean, format.limit()].map(|value| number(f64::from(value), 3, 12));
    let text = format!("log-probabilities of {tokens} tokens differ by at most {most}, on average {average}");
    terminal.status("Compared", format!("{text}; {limit} is allowed"));
    terminal.event(json!({
        "event": "compared", "format": to.name(), "tokens": tokens, "largest_difference": largest,
        "mean_difference": mean, "limit": format.limit(),
    }));
}

/// Fails if the output exists, if a file's name does not end in `.gguf`, or if a folder's name does.
fn check_output(out: &Path, format: Format) -> Result<(), Failure> {
    let shown = out.display();
    if out.exists() {
        return Err(Failure::usage(format!("`{shown}` exists already"), "choose another `--out`"));
    }
    let is_gguf = out.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    match (format.is_file(), is_gguf) {
        (true, false) => {
            let hint = format!("name it `--out {}.gguf`", quote(&shown.to_string()));
            Err(Failure::usage(format!("the format is one GGUF file, and `{shown}` does not end in `.gguf`"), hint))
        }
        (false, true) => Err(Failure::usage(
            format!("the format is a folder, and `{shown}` is the name of a GGUF file"),
            "choose `--to gguf` for a file, or another `--out`",
        )),
        _ => Ok(()),
    }
}

/// Returns the bytes of a file, or of the files directly in a folder. What cannot be read counts as 0.
fn size_of(path: &Path) -> u64 {
    let length = |path: &Path| path.metadata().map_or(0, |about| about.len());
    if !path.is_dir() {
        return length(path);
    }
    std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| length(&entry.path())).sum()
}

/// Returns a command that uses the export, with `BASE` for the base model's path where an adapter needs one. `None` for
/// PEFT, a Python library without a command.
fn next_command(to: Target, out: &Path) -> Option<String> {
    let path = quote(&out.display().to_string());
    match to {
        Target::Gguf | Target::Hf => Some(chat_command(out)),
        Target::GgufLora => Some(format!("llama-cli -m BASE.gguf --lora {path}")),
        Target::Ollama => {
            let name = quote(&out.file_name().unwrap_or_default().to_string_lossy());
            Some(format!("ollama create {name} -f {}", quote(&out.join("Modelfile").display().to_string())))
        }
        Target::Mlx => Some(format!("mlx_lm.chat --model BASE --adapter-path {path}")),
        Target::Peft => None,
    }
}
