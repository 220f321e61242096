//! Sites of the residual stream, where activations can be read and patches change them.
//!
//! A patch only describes a change; `decoder::hook` applies it inside a block, and the policy decides which patches
//! are active. The linear maps of a block are `decoder::Site`, not [`Site`].

use std::collections::BTreeSet;
use std::sync::Arc;

use tunebox_compute::{Device, Tensor};

use crate::error::{Error, Result};

/// A place in a block where activations can be read or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Site {
    /// The block's input.
    ResidualBefore,
    /// The attention's output, before Gemma's second norm and before it is added to the stream.
    AttentionOutput,
    /// The feed-forward part's output, before Gemma's second norm and before it is added to the stream.
    MlpOutput,
    /// The block's output, before the norm of the next block or of the output head.
    ResidualAfter,
}

impl Site {
    /// The name that files and messages use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ResidualBefore => "residual-before",
            Self::AttentionOutput => "attention-output",
            Self::MlpOutput => "mlp-output",
            Self::ResidualAfter => "residual-after",
        }
    }

    /// The site whose [`name`](Self::name) equals this one, case included; `None` for any other text.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::ResidualBefore, Self::AttentionOutput, Self::MlpOutput, Self::ResidualAfter];
        all.into_iter().find(|site| site.name() == name)
    }
}

/// Which tokens of a row are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// Counted from the end of the row: 0 is the last token.
    FromEnd(u32),
    /// The mean over the row's target tokens.
    TargetMean,
    /// Each target token of the row.
    Targets,
}

impl Token {
    /// The name that files use, such as `from-end-0`.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::FromEnd(number) => format!("from-end-{number}"),
            Self::TargetMean => "target-mean".into(),
            Self::Targets => "targets".into(),
        }
    }

    /// Parses `target-mean`, `targets`, or `from-end-` followed by a number that fits `u32`; `None` for anything else.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name.strip_prefix("from-end-") {
            Some(number) => number.parse().ok().map(Self::FromEnd),
            None => [Self::TargetMean, Self::Targets].into_iter().find(|token| token.name() == name),
        }
    }
}

/// A change of the activations at one site of some layers.
#[derive(Debug, Clone)]
pub struct Patch {
    pub(crate) layers: Vec<usize>,
    pub(crate) site: Site,
    /// `[1, hidden]`, `f32`.
    pub(crate) vector: Tensor,
    /// None: the vector v is added, x + v. Otherwise the vector r has length 1, and the component of x along r is set
    /// to this value c: x + (c − x·r) r.
    pub(crate) component: Option<f64>,
    /// Whether the patch changes only tokens of answers.
    pub(crate) answers_only: bool,
}

impl Patch {
    /// A patch that adds `coefficient` · `vector` at some layers, counted from 0; with `answers_only`, only at tokens
    /// of answers: the targets when rows are scored, the new tokens when completions are generated.
    /// [`Policy::patch`](crate::Policy::patch) checks that the layers exist and the vector fits.
    ///
    /// # Errors
    /// When the product is not finite, no layer is named, or a layer is named twice.
    pub fn add(layers: Vec<usize>, site: Site, vector: &[f32], coefficient: f32, answers_only: bool) -> Result<Self> {
        let scaled: Vec<f32> = vector.iter().map(|value| value * coefficient).collect();
        if !scaled.iter().all(|value| value.is_finite()) {
            return Err(Error::Argument("the vector times its coefficient is not made of finite numbers".into()));
        }
        Self::new(layers, site, scaled, None, answers_only)
    }

    /// A patch that removes the component along a direction, of any length above 0, at some layers, counted from 0, for
    /// all tokens.
    ///
    /// # Errors
    /// When the direction's length is 0 or not finite, no layer is named, or a layer is named twice.
    pub fn ablate(layers: Vec<usize>, site: Site, direction: &[f32]) -> Result<Self> {
        Self::project(layers, site, direction, 0.0)
    }

    /// A patch that sets the component along a direction, of any length above 0, to `value` at some layers, counted
    /// from 0, for all tokens.
    ///
    /// # Errors
    /// When the direction's length is 0 or not finite, the value is not finite, no layer is named, or a layer is named
    /// twice.
    pub fn project(layers: Vec<usize>, site: Site, direction: &[f32], value: f32) -> Result<Self> {
        if !value.is_finite() {
            return Err(Error::Argument(format!("a component is set to a finite number, this is `{value}`")));
        }
        Self::new(layers, site, normalize(direction)?, Some(f64::from(value)), false)
    }

    /// A patch from its parts: adds `vector` if `component` is `None`, else sets the component along `vector`, of
    /// length 1, to that value. Errors: no layer, or a layer named twice.
    fn new(
        layers: Vec<usize>,
        site: Site,
        vector: Vec<f32>,
        component: Option<f64>,
        answers_only: bool,
    ) -> Result<Self> {
        if layers.is_empty() || BTreeSet::from_iter(&layers).len() != layers.len() {
            return Err(Error::Argument("a patch names at least one layer, and none twice".into()));
        }
        let width = vector.len();
        let vector = Tensor::from_vec(vector, (1, width), &Device::Cpu)?;
        Ok(Self { layers, site, vector, component, answers_only })
    }
}

/// Scales a direction to length 1, computed in `f64`.
///
/// # Errors
/// When its length is 0 or not finite.
pub fn normalize(direction: &[f32]) -> Result<Vec<f32>> {
    let length = direction.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    if !(length.is_finite() && length > 0.0) {
        return Err(Error::Argument(format!("a direction has a length above 0, this one has `{length}`")));
    }
    Ok(direction.iter().map(|value| (f64::from(*value) / length) as f32).collect())
}

/// The active patches, in the order in which they were added. A clone shares their memory until one of the two changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Patches {
    list: Arc<Vec<(u64, Patch)>>,
    next: u64,
}

impl Patches {
    /// Activates a patch after those already active, and returns its number, for [`Patches::remove`]. Numbers count up
    /// from 0 and are not used again.
    pub(crate) fn add(&mut self, patch: Patch) -> u64 {
        let number = self.next;
        self.next += 1;
        Arc::make_mut(&mut self.list).push((number, patch));
        number
    }

    /// Removes the patch with this number. Does nothing if there is none.
    pub(crate) fn remove(&mut self, number: u64) {
        Arc::make_mut(&mut self.list).retain(|(known, _)| *known != number);
    }

    /// The number of active patches.
    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    /// The active patches at a layer and site, oldest first.
    pub(crate) fn at(&self, layer: usize, site: Site) -> impl Iterator<Item = &Patch> {
        let here = move |patch: &&Patch| patch.site == site && patch.layers.contains(&layer);
        self.list.iter().map(|(_, patch)| patch).filter(here)
    }

    /// Whether any active patch changes only the tokens of answers.
    pub(crate) fn ask_for_answers(&self) -> bool {
        self.list.iter().any(|(_, patch)| patch.answers_only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_found_by_its_name() {
        for token in [Token::FromEnd(0), Token::FromEnd(12), Token::TargetMean, Token::Targets] {
            assert_eq!(Token::from_name(&token.name()), Some(token));
        }
        assert_eq!(Token::from_name("target"), None);
    }
}
