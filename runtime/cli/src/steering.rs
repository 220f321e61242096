//! `--steer`: vectors added to the residual stream while a model generates.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::Args;
use tunebox_compute::precision::Base;
use tunebox_model::vectors::Vectors;
use tunebox_training::{base_precision, model_files};

use crate::access::Access;
use crate::model::LoadedModel;
use crate::terminal::{Failure, Terminal};

/// Options that add steering vectors.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SteeringOptions {
    /// File of steering vectors to add to the outputs of the transformer blocks: safetensors or a GGUF control vector
    /// [default: those of MODEL, if it is a run of `steer`]
    #[arg(long, value_name = "FILE")]
    steer: Option<PathBuf>,
    /// Factor for the steering vectors [default: the scale in their file, or 1]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    coefficient: Option<f32>,
    /// Layers to steer, counted from 0: `3` or `3..6`, both ends included [default: all]
    #[arg(long, value_name = "A..B", value_parser = parse_layers)]
    layers: Option<RangeInclusive<usize>>,
}

impl SteeringOptions {
    /// Adds the files that [`add_vectors`](Self::add_vectors) reads to the access of a command. `None` stays `None`;
    /// without `--steer`, the access stays as it is.
    pub(crate) fn add_files(&self, access: Option<Access>) -> Option<Access> {
        let read = self.steer.iter().flat_map(|path| model_files(path));
        access.map(|access| Access { read: access.read.into_iter().chain(read).collect(), ..access })
    }

    /// Adds the vectors of `--steer`, else those of the model's run, to the policy, scaled by `--coefficient` (else the
    /// file's scale, else 1), at the layers of `--layers` (else all). Returns whether there are vectors. Warns if they
    /// were trained on another base precision. Errors: a file that cannot be read, vectors that do not fit the model,
    /// and a coefficient or layers without vectors.
    pub(crate) fn add_vectors(&self, terminal: Terminal, loaded: &mut LoadedModel) -> Result<bool, Failure> {
        let Some(path) = self.steer.as_ref().or(loaded.vectors.as_ref()) else {
            if self.coefficient.is_none() && self.layers.is_none() {
                return Ok(false);
            }
            let hint = "name their file with `--steer FILE`, or a run of `steer` as the model";
            return Err(Failure::usage("`--coefficient` and `--layers` are for vectors, and there are none", hint));
        };
        let policy = &mut loaded.policy;
        let vectors = Vectors::load(path)?;
        if let Some(warning) = precision_warning(path, policy.precision().base())? {
            terminal.warn(warning);
        }
        let coefficient = self.coefficient.unwrap_or_else(|| default_coefficient(&vectors));
        let layers = self.layers.clone().unwrap_or(0..=usize::MAX);
        policy.steer(&vectors, coefficient, &layers).map_err(|error| {
            let mut failure = Failure::from(error);
            failure.explanation.location = Some(path.display().to_string());
            failure
        })?;
        Ok(true)
    }
}

/// The `scale` in the metadata of a vector file, or 1 if the file has none or it is not a number.
pub(crate) fn default_coefficient(vectors: &Vectors) -> f32 {
    vectors.metadata.get("scale").and_then(|scale| scale.parse().ok()).unwrap_or(1.0)
}

/// Compares the base precision of the run that wrote a vector file with the precision `now`. Returns a warning if they
/// differ, and `None` if they agree or the file is not in a run's folder.
fn precision_warning(vectors: &Path, now: Base) -> Result<Option<String>, Failure> {
    let Some(folder) = vectors.parent() else { return Ok(None) };
    let trained = base_precision(folder)?.filter(|trained| *trained != now);
    Ok(trained.map(|trained| {
        format!("the vectors come from a base in `{trained}`, this one is in `{now}`: use `--base-precision {trained}`")
    }))
}

/// Parses one layer, `3`, or a range with both ends included, `3..6` or `3..=6`. Fails if the first is the larger.
fn parse_layers(text: &str) -> Result<RangeInclusive<usize>, String> {
    let error = || "layers are written as `3` or `3..6`, the smaller number first".to_owned();
    let number = |text: &str| text.trim().parse::<usize>().map_err(|_| error());
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last.trim_start_matches('='))?);
    if first <= last { Ok(first..=last) } else { Err(error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_a_run_on_another_base_precision_give_a_warning_with_the_flag_to_use() {
        let run = tempfile::tempdir().unwrap();
        let vectors = run.path().join("vectors.safetensors");
        assert_eq!(precision_warning(&vectors, Base::Stored).unwrap(), None);
        std::fs::write(run.path().join("run.lock"), "[settings.model]\nprecision = \"nf4\"\n").unwrap();
        assert_eq!(precision_warning(&vectors, Base::Nf4).unwrap(), None);
        let warning = precision_warning(&vectors, Base::Stored).unwrap().unwrap();
        assert!(warning.contains("`--base-precision nf4`"), "{warning}");
    }

    #[test]
    fn layers_are_one_or_a_range_with_both_ends() {
        assert_eq!(parse_layers("3"), Ok(3..=3));
        assert_eq!(parse_layers("3..6"), Ok(3..=6));
        for wrong in ["", "a", "6..3", "3..", "-1", "1..2..3"] {
            assert!(parse_layers(wrong).is_err(), "{wrong}");
        }
    }
}
