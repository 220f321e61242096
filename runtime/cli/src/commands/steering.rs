//! `--steer`: directions that are added while a model writes, on top of whatever adapter it has.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::Args;
use tunebox_compute::precision::Base;
use tunebox_model::Policy;
use tunebox_model::vectors::Vectors;
use tunebox_training::base_precision;

use crate::terminal::Terminal;
use crate::terminal::diagnostic::Failure;

/// Directions to add, how much, and where.
#[derive(Debug, Clone, Args)]
pub(crate) struct Steering {
    /// Add the directions of this file at the blocks' outputs: safetensors or a GGUF control vector
    #[arg(long, value_name = "FILE")]
    steer: Option<PathBuf>,
    /// What the directions are multiplied by; what their file advises unless given
    #[arg(long, value_name = "NUMBER", requires = "steer", allow_negative_numbers = true)]
    coefficient: Option<f32>,
    /// Only these layers, counted from 0: `3` or `3..6`, both ends included
    #[arg(long, value_name = "A..B", requires = "steer", value_parser = layers)]
    layers: Option<RangeInclusive<usize>>,
}

impl Steering {
    /// Steers a policy, if that is asked for.
    pub(crate) fn apply(&self, terminal: Terminal, policy: &mut Policy) -> Result<(), Failure> {
        let Some(path) = &self.steer else { return Ok(()) };
        let vectors = Vectors::load(path)?;
        if let Some(warning) = other_base(path, policy.precision().base())? {
            terminal.say("Warning", warning);
        }
        let advised = vectors.facts.get("scale").and_then(|scale| scale.parse().ok());
        let coefficient = self.coefficient.or(advised).unwrap_or(1.0);
        let layers = self.layers.clone().unwrap_or(0..=usize::MAX);
        policy.steer(&vectors, coefficient, &layers).map_err(|error| {
            let mut failure = Failure::from(error);
            failure.explanation.location = Some(path.display().to_string());
            failure
        })
    }

    /// Whether anything is added.
    pub(crate) fn is_some(&self) -> bool {
        self.steer.is_some()
    }
}

/// What to tell where the run that left the directions had its base in other numbers than they are added to now. Nobody
/// knows it of a file that lies in no run's folder.
fn other_base(directions: &Path, now: Base) -> Result<Option<String>, Failure> {
    let Some(folder) = directions.parent() else { return Ok(None) };
    let flag = |base| if base == Base::Nf4 { "nf4" } else { "stored" };
    let then = base_precision(folder)?.filter(|then| *then != now);
    Ok(then.map(|then| {
        let (then, now) = (flag(then), flag(now));
        format!("the directions were found on a base in `{then}`, this one is in `{now}`: `--base-precision {then}`")
    }))
}

/// Reads `3` or `3..6`.
fn layers(text: &str) -> Result<RangeInclusive<usize>, String> {
    let wrong = || "layers are written as `3` or `3..6`, the smaller number first".to_owned();
    let number = |text: &str| text.trim().parse::<usize>().map_err(|_| wrong());
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last.trim_start_matches('='))?);
    if first <= last { Ok(first..=last) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_of_a_run_on_another_base_are_told_with_the_flag_that_mends_it() {
        let run = tempfile::tempdir().unwrap();
        let directions = run.path().join("vectors.safetensors");
        assert_eq!(other_base(&directions, Base::Stored).unwrap(), None);
        std::fs::write(run.path().join("run.lock"), "[settings.model]\nprecision = \"nf4\"\n").unwrap();
        assert_eq!(other_base(&directions, Base::Nf4).unwrap(), None);
        let warning = other_base(&directions, Base::Stored).unwrap().unwrap();
        assert!(warning.contains("`--base-precision nf4`"), "{warning}");
    }

    #[test]
    fn layers_are_one_or_a_range_with_both_ends() {
        assert_eq!(layers("3"), Ok(3..=3));
        assert_eq!(layers("3..6"), Ok(3..=6));
        for wrong in ["", "a", "6..3", "3..", "-1", "1..2..3"] {
            assert!(layers(wrong).is_err(), "{wrong}");
        }
    }
}
