//! Learning-rate schedules: a factor for every step, with the formulas of the `transformers` library.
//!
//! There is no schedule that depends on a metric: a factor depends on the step alone, so a run resumes exactly.

use std::f64::consts::PI;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The time scale, in steps, of the inverse square root schedule without a warm-up.
const TIMESCALE: f64 = 10_000.0;

/// The learning rate over a run as a share of its peak. All schedules but `constant` first rise over the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    shape: Shape,
    /// The parameter of the shape, written after a colon as in `polynomial:2`; 0 for a shape without one.
    number: f64,
}

/// How the learning rate, as a share of its peak, changes after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Down to 0 in a straight line.
    Linear,
    /// Down to 0 along half a cosine.
    Cosine,
    /// As many half cosines as the parameter says, each from 1 to 0.
    CosineWithRestarts,
    /// (1 − progress) to the power of the parameter, where progress goes from 0 after the warm-up to 1 at the end.
    Polynomial,
    /// 1 from the first step on.
    Constant,
    /// 1 after the warm-up.
    ConstantWithWarmup,
    /// √(w / step), where w is the warm-up, or 10,000 without one.
    InverseSqrt,
    /// A straight line from 1 down to the parameter.
    LinearWithMinRate,
    /// Half a cosine from 1 down to the parameter.
    CosineWithMinRate,
    /// Half a cosine from 1 down to the parameter, evaluated one step ahead, so that no step has factor 0.
    CosineWarmupWithMinRate,
    /// 1 until the last part of the run, which goes down along half a cosine. The parameter is the length of that part
    /// as a fraction of all steps.
    WarmupStableDecay,
}

/// The parameter of a shape: (its default, its least, its largest value).
type Range = (f64, f64, f64);

/// Every shape with its name, and the range of its parameter if it has one.
const SHAPES: [(Shape, &str, Option<Range>); 11] = [
    (Shape::Linear, "linear", None),
    (Shape::Cosine, "cosine", None),
    (Shape::CosineWithRestarts, "cosine-with-restarts", Some((1.0, 1.0, 1e6))),
    (Shape::Polynomial, "polynomial", Some((1.0, 0.0, 100.0))),
    (Shape::Constant, "constant", None),
    (Shape::ConstantWithWarmup, "constant-with-warmup", None),
    (Shape::InverseSqrt, "inverse-sqrt", None),
    (Shape::LinearWithMinRate, "linear-with-min-rate", Some((0.1, 0.0, 1.0))),
    (Shape::CosineWithMinRate, "cosine-with-min-rate", Some((0.1, 0.0, 1.0))),
    (Shape::CosineWarmupWithMinRate, "cosine-warmup-with-min-rate", Some((0.1, 0.0, 1.0))),
    (Shape::WarmupStableDecay, "warmup-stable-decay", Some((0.1, 0.0, 1.0))),
];

/// The length of the warm-up, over which the learning rate rises.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Warmup {
    /// Number of updates.
    Updates(#[schemars(range(min = 0, max = 10_000_000))] u32),
    /// Share of the updates of a run, in [0, 1).
    Share(#[schemars(extend("minimum" = 0.0, "exclusiveMaximum" = 1.0))] f64),
}

impl Default for Warmup {
    /// No warm-up.
    fn default() -> Self {
        Self::Updates(0)
    }
}

impl Warmup {
    /// The updates of the warm-up in a run of `total` updates. A share is rounded up, as by `get_warmup_steps` of the
    /// `transformers` library.
    #[must_use]
    pub fn updates(self, total: u64) -> u64 {
        match self {
            Self::Updates(updates) => u64::from(updates),
            Self::Share(share) => (total as f64 * share).ceil() as u64,
        }
    }
}

impl Schedule {
    /// The peak rate at every step.
    pub const CONSTANT: Self = Self { shape: Shape::Constant, number: 0.0 };

    /// Whether the rate falls to a share of the peak that the number gives.
    #[must_use]
    pub fn has_floor(&self) -> bool {
        use Shape::{CosineWarmupWithMinRate, CosineWithMinRate, LinearWithMinRate};
        matches!(self.shape, LinearWithMinRate | CosineWithMinRate | CosineWarmupWithMinRate)
    }

    /// Sets the share of the peak to which the rate falls.
    ///
    /// # Errors
    /// [`Error::Argument`] if the schedule [has no floor](Self::has_floor), or the share is outside [0, 1].
    pub fn with_floor(self, share: f64) -> Result<Self, Error> {
        if !self.has_floor() || !(0.0..=1.0).contains(&share) {
            return Err(Error::argument(format!("the schedule `{self}` cannot fall to {share} of the peak")));
        }
        Ok(Self { number: share, ..self })
    }

    /// The names of all schedules, as [`from_str`](Self::from_str) takes them, without a number.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHAPES.iter().map(|(_, name, _)| *name)
    }

    /// All schedules, each with the default of its number.
    fn defaults() -> impl Iterator<Item = Self> {
        SHAPES
            .iter()
            .map(|(shape, _, range)| Self { shape: *shape, number: range.map_or(0.0, |(default, ..)| default) })
    }

    /// The factor by which the peak learning rate is multiplied at `step`, counted from 0, of a run of `total` steps
    /// with `warmup` warm-up steps.
    ///
    /// In the warm-up the factor is step / warmup, but (step + 1) / warmup for `cosine-warmup-with-min-rate` and always
    /// 1 for `constant`. Afterwards it follows the curve of the schedule, which ends at `total` and lasts at least 1
    /// step. Past the end of the curve the factor keeps the last value, except for `inverse-sqrt`, which goes on
    /// falling. The last part of `warmup-stable-decay` is rounded to whole steps and never begins before the end of the
    /// warm-up.
    #[must_use]
    pub fn factor(&self, step: u64, warmup: u64, total: u64) -> f64 {
        let (now, rise, end) = (step as f64, warmup as f64, total as f64);
        if step < warmup {
            return match self.shape {
                Shape::Constant => 1.0,
                Shape::CosineWarmupWithMinRate => (now + 1.0) / rise,
                _ => now / rise,
            };
        }
        let span = (end - rise).max(1.0);
        let progress = (now - rise) / span;
        match self.shape {
            Shape::Constant | Shape::ConstantWithWarmup => 1.0,
            Shape::Linear => ((end - now) / span).max(0.0),
            Shape::Cosine => half_cosine(progress),
            Shape::CosineWithRestarts if progress >= 1.0 => 0.0,
            Shape::CosineWithRestarts => half_cosine((self.number * progress).fract()),
            Shape::Polynomial => (1.0 - progress).max(0.0).powf(self.number),
            Shape::InverseSqrt => inverse_square_root(now, rise),
            Shape::LinearWithMinRate => scale_above_floor(self.number, (1.0 - progress).max(0.0)),
            Shape::CosineWithMinRate => scale_above_floor(self.number, half_cosine(progress)),
            Shape::CosineWarmupWithMinRate => scale_above_floor(self.number, half_cosine(progress + 1.0 / span)),
            Shape::WarmupStableDecay => {
                let length = (self.number * end).round().clamp(0.0, end - rise.min(end));
                if now < end - length { 1.0 } else { half_cosine((now - end + length) / length.max(1.0)) }
            }
        }
    }
}

/// Half a cosine, ½·(1 + cos πp) for the progress p: from 1 at 0 to 0 at 1; also 0 above 1.
fn half_cosine(progress: f64) -> f64 {
    0.5 * (1.0 + (PI * progress.min(1.0)).cos())
}

/// Maps a factor from [0, 1] linearly to [floor, 1].
fn scale_above_floor(floor: f64, factor: f64) -> f64 {
    factor * (1.0 - floor) + floor
}

/// Returns √(s / (now + s − rise)) with the time scale s: the warm-up `rise` in steps, or [`TIMESCALE`] without one.
/// `now` is the step.
fn inverse_square_root(now: f64, rise: f64) -> f64 {
    let scale = if rise > 0.0 { rise } else { TIMESCALE };
    (scale / (now + scale - rise)).sqrt()
}

impl fmt::Display for Schedule {
    /// Writes the text that `from_str` parses: the name, then a colon and the parameter if the schedule has one.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (_, name, range) in SHAPES.iter().filter(|(shape, ..)| *shape == self.shape) {
            formatter.write_str(name)?;
            range.map_or(Ok(()), |_| write!(formatter, ":{}", self.number))?;
        }
        Ok(())
    }
}

impl FromStr for Schedule {
    type Err = Error;

    /// Parses the name of a schedule, with a number after a colon where the schedule takes one: `cosine`,
    /// `polynomial:2`. A number left out is the schedule's default.
    ///
    /// # Errors
    /// [`Error::Argument`] for an unknown name, a number where none is taken, and a number out of range.
    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
        let Some(&(shape, _, range)) = SHAPES.iter().find(|(_, known, _)| *known == name) else {
            let names: Vec<_> = Self::defaults().map(|schedule| format!("`{schedule}`")).collect();
            let names = names.join(", ");
            return Err(Error::argument(format!("`{name}` is no schedule; there are, with their defaults, {names}")));
        };
        let number = match (range, number) {
            (None, None) => 0.0,
            (None, Some(_)) => return Err(Error::argument(format!("the schedule `{name}` takes no number"))),
            (Some((default, ..)), None) => default,
            (Some((_, low, high)), Some(number)) => match number.parse::<f64>() {
                Ok(value) if (low..=high).contains(&value) => value,
                _ => return Err(Error::argument(format!("`{text}`: the number must lie in {low} … {high}"))),
            },
        };
        Ok(Self { shape, number })
    }
}

#[cfg(test)]
mod tests;
