//! Learning-rate schedules: a factor for every step, with the formulas of the `transformers` library.
//!
//! There is no schedule that depends on a metric: a factor depends on the step alone, so a run resumes exactly.

use std::f64::consts::PI;
use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// Warm-up steps that the inverse square root is measured in when there is no warm-up.
const TIMESCALE: f64 = 10_000.0;

/// The shape of the learning rate over a run. All but `constant` first rise over the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// Down to 0 in a straight line.
    Linear,
    /// Down to 0 along half a cosine.
    Cosine,
    /// Half cosines, so many, each from 1 to 0.
    CosineWithRestarts {
        /// How many.
        cycles: f64,
    },
    /// (1 − progress)^power.
    Polynomial {
        /// The power.
        power: f64,
    },
    /// 1 from the first step on.
    Constant,
    /// 1 after the warm-up.
    ConstantWithWarmup,
    /// √(w / step), where w is the warm-up, or 10,000 without one.
    InverseSqrt,
    /// Half a cosine down to `floor`.
    CosineWithMinRate {
        /// The last factor.
        floor: f64,
    },
    /// Half a cosine down to `floor`, evaluated one step ahead, so that no step has factor 0.
    CosineWarmupWithMinRate {
        /// The last factor.
        floor: f64,
    },
    /// 1 until the last part of the run, which goes down along half a cosine.
    WarmupStableDecay {
        /// The last part, as a fraction of all steps.
        decay: f64,
    },
}

/// The number after a colon: its default, the least and the most.
type Range = (f64, f64, f64);

/// Every name, and the number after the colon if there may be one.
const NAMES: [(&str, Option<Range>); 10] = [
    ("linear", None),
    ("cosine", None),
    ("cosine-with-restarts", Some((1.0, 1.0, 1e6))),
    ("polynomial", Some((1.0, 0.0, 100.0))),
    ("constant", None),
    ("constant-with-warmup", None),
    ("inverse-sqrt", None),
    ("cosine-with-min-rate", Some((0.1, 0.0, 1.0))),
    ("cosine-warmup-with-min-rate", Some((0.1, 0.0, 1.0))),
    ("warmup-stable-decay", Some((0.1, 0.0, 1.0))),
];

impl Schedule {
    /// The names that [`from_str`](Self::from_str) takes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }

    /// What the learning rate is multiplied with at `step`, counted from 0, of a run of `total` steps with `warmup`
    /// steps of rising. With a warm-up, step 0 has factor 0 (`cosine-warmup-with-min-rate` excepted).
    #[must_use]
    pub fn factor(&self, step: u64, warmup: u64, total: u64) -> f64 {
        let (now, rise, end) = (step as f64, warmup as f64, total as f64);
        if step < warmup {
            return match self {
                Self::Constant => 1.0,
                Self::CosineWarmupWithMinRate { .. } => (now + 1.0) / rise,
                _ => now / rise,
            };
        }
        let span = (end - rise).max(1.0);
        let progress = (now - rise) / span;
        match *self {
            Self::Constant | Self::ConstantWithWarmup => 1.0,
            Self::Linear => ((end - now) / span).max(0.0),
            Self::Cosine => half_cosine(progress),
            Self::CosineWithRestarts { .. } if progress >= 1.0 => 0.0,
            Self::CosineWithRestarts { cycles } => half_cosine((cycles * progress).fract()),
            Self::Polynomial { power } => (1.0 - progress).max(0.0).powf(power),
            Self::InverseSqrt => inverse_square_root(now, rise),
            Self::CosineWithMinRate { floor } => above(floor, half_cosine(progress)),
            Self::CosineWarmupWithMinRate { floor } => above(floor, half_cosine(progress + 1.0 / span)),
            Self::WarmupStableDecay { decay } => {
                let length = (decay * end).round().clamp(0.0, end - rise.min(end));
                if now < end - length { 1.0 } else { half_cosine((now - end + length) / length.max(1.0)) }
            }
        }
    }

    /// The name and the number after the colon.
    fn parts(&self) -> (&'static str, Option<f64>) {
        match *self {
            Self::Linear => ("linear", None),
            Self::Cosine => ("cosine", None),
            Self::CosineWithRestarts { cycles } => ("cosine-with-restarts", Some(cycles)),
            Self::Polynomial { power } => ("polynomial", Some(power)),
            Self::Constant => ("constant", None),
            Self::ConstantWithWarmup => ("constant-with-warmup", None),
            Self::InverseSqrt => ("inverse-sqrt", None),
            Self::CosineWithMinRate { floor } => ("cosine-with-min-rate", Some(floor)),
            Self::CosineWarmupWithMinRate { floor } => ("cosine-warmup-with-min-rate", Some(floor)),
            Self::WarmupStableDecay { decay } => ("warmup-stable-decay", Some(decay)),
        }
    }
}

/// ½·(1 + cos πp): from 1 at 0 to 0 at 1, where it stays.
fn half_cosine(progress: f64) -> f64 {
    0.5 * (1.0 + (PI * progress.min(1.0)).cos())
}

/// A factor of [0, 1] brought to [floor, 1].
fn above(floor: f64, factor: f64) -> f64 {
    factor * (1.0 - floor) + floor
}

/// √(scale / (step + scale − warm-up)); `scale` is the warm-up, or [`TIMESCALE`] without one.
fn inverse_square_root(now: f64, rise: f64) -> f64 {
    let scale = if rise > 0.0 { rise } else { TIMESCALE };
    (scale / (now + scale - rise)).sqrt()
}

impl fmt::Display for Schedule {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (name, None) => to.write_str(name),
            (name, Some(number)) => write!(to, "{name}:{number}"),
        }
    }
}

impl FromStr for Schedule {
    type Err = Error;

    /// Reads a name, with a number after a colon where the schedule has one: `cosine`, `polynomial:2`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
        let Some((_, range)) = NAMES.iter().find(|(known, _)| *known == name) else {
            let names: Vec<_> = Self::names().map(|name| format!("`{name}`")).collect();
            return Err(Error::argument(format!("`{name}` is no schedule; there are {}", names.join(", "))));
        };
        let value = match (range, number) {
            (None, None) => 0.0,
            (None, Some(_)) => return Err(Error::argument(format!("the schedule `{name}` takes no number"))),
            (Some((default, ..)), None) => *default,
            (Some((_, low, high)), Some(number)) => match number.parse::<f64>() {
                Ok(value) if (*low..=*high).contains(&value) => value,
                _ => return Err(Error::argument(format!("`{text}`: the number must lie in {low} … {high}"))),
            },
        };
        Ok(match name {
            "linear" => Self::Linear,
            "cosine" => Self::Cosine,
            "cosine-with-restarts" => Self::CosineWithRestarts { cycles: value },
            "polynomial" => Self::Polynomial { power: value },
            "constant" => Self::Constant,
            "constant-with-warmup" => Self::ConstantWithWarmup,
            "inverse-sqrt" => Self::InverseSqrt,
            "cosine-with-min-rate" => Self::CosineWithMinRate { floor: value },
            "cosine-warmup-with-min-rate" => Self::CosineWarmupWithMinRate { floor: value },
            _ => Self::WarmupStableDecay { decay: value },
        })
    }
}

#[cfg(test)]
mod tests;
