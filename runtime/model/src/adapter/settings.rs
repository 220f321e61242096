//! How a person describes an adapter: its kind, size and places.
//! Leaves finding the places in a model to `choice`.

use std::fmt;

use crate::error::{Error, Result};

/// Kind of adapter, or all weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AdapterKind {
    /// Low-rank factors, scaled by alpha ÷ rank: W + (alpha/r)·B·A (Hu et al. 2021).
    #[default]
    Lora,
    /// Low-rank factors, scaled by alpha ÷ √rank: W + (alpha/√r)·B·A (Kalajdzievski 2023).
    RsLora,
    /// Low-rank factors and a magnitude for each output (Liu et al. 2024).
    Dora,
    /// No adapter: all weights are trained.
    Full,
}

impl AdapterKind {
    /// The factor of B·A: alpha/√rank for rsLoRA, alpha/rank for every other kind.
    #[must_use]
    pub fn scale(self, alpha: f64, rank: usize) -> f64 {
        let rank = rank as f64;
        match self {
            Self::RsLora => alpha / rank.sqrt(),
            _ => alpha / rank,
        }
    }
}

impl fmt::Display for AdapterKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        serde::Serialize::serialize(self, formatter)
    }
}

/// Modules that get an adapter.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Targets {
    /// Every linear layer of every block; never the embedding or the head.
    #[default]
    AllLinear,
    /// Modules whose path is one of these names or ends with one: `q_proj`, `mlp.down_proj`.
    #[serde(untagged)]
    Modules(Vec<String>),
}

/// What an adapter is made from.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterSettings {
    /// The kind.
    pub kind: AdapterKind,
    /// Rows of A and columns of B; at least 1. Ignored when all weights are trained.
    pub rank: usize,
    /// The numerator of the scale.
    pub alpha: f64,
    /// The share of inputs that the adapter does not see while learning, in `[0, 1)`.
    pub dropout: f64,
    /// The modules that get one.
    pub targets: Targets,
    /// The blocks that get one, counted from 0; all unless given.
    pub layers: Option<Vec<usize>>,
    /// Where the first values of A and the dropout masks come from.
    pub seed: u64,
}

impl Default for AdapterSettings {
    fn default() -> Self {
        Self {
            kind: AdapterKind::Lora,
            rank: 16,
            alpha: 32.0,
            dropout: 0.0,
            targets: Targets::AllLinear,
            layers: None,
            seed: 42,
        }
    }
}

impl AdapterSettings {
    /// Checks the settings that do not depend on a model. Kind full ignores rank and alpha.
    ///
    /// # Errors
    /// When a number is outside its range, or a combination is not supported.
    pub fn check(&self) -> Result<()> {
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(Error::Argument(format!("adapter dropout `{}` is outside [0, 1)", self.dropout)));
        }
        let no_dropout = match self.kind {
            AdapterKind::Dora => Some("use `lora`, or dropout 0"),
            AdapterKind::Full => Some("there is no adapter to drop from"),
            _ => None,
        };
        if let (Some(why), true) = (no_dropout, self.dropout > 0.0) {
            let (dropout, kind) = (self.dropout, self.kind);
            let what = format!("adapter dropout `{dropout}` with kind `{kind}` is not supported: {why}");
            return Err(Error::Unsupported(what));
        }
        if self.kind == AdapterKind::Full {
            if self.layers.is_some() || self.targets != Targets::AllLinear {
                let what = "kind `full` trains all weights; take `targets` and `layers` out, or use `lora`";
                return Err(Error::Unsupported(what.into()));
            }
            return Ok(());
        }
        if self.rank == 0 {
            return Err(Error::Argument("adapter rank `0` would train nothing; it is at least 1".into()));
        }
        if !(self.alpha.is_finite() && self.alpha > 0.0) {
            return Err(Error::Argument(format!("adapter alpha `{}` is not a positive number", self.alpha)));
        }
        Ok(())
    }
}
