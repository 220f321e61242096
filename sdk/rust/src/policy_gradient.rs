//! The mathematics that policy-gradient methods share: sampled groups, advantages by rule, ratios
//! between the policy and the one that wrote, and the losses made of them.
//!
//! Each piece is a struct of settings with a doc comment a field, so a method puts the pieces it wants
//! into its own settings with `#[setting(flatten)]`, or fills them in itself. Names and defaults are
//! those of TRL 1.16 in kebab-case; a difference is said where it is.
//!
//! Per-token tensors are `[rows, width]`, per-row ones `[rows, 1]`; a mask is 1 where a token counts.
//!
//! ```
//! # use tunebox::prelude::*;
//! # fn step(batch: &Batch, sampling: &tunebox::policy_gradient::Sampling) -> Result<()> {
//! use tunebox::policy_gradient::{Advantage, Divergence, Learner, Objective, Sampling, Steering};
//!
//! let rollout = sampling.roll_out(batch)?; // sampled and judged
//! rollout.report();
//! let kept = rollout.keep(false, false);
//! let (advantage, objective) = (Advantage::scaled(true), Objective::clipped(0.2, 0.28));
//! let divergence = Divergence { beta: 0.0, kl_bias_correction: true };
//! let (advantage, objective, divergence) = (&advantage, &objective, &divergence);
//! let learner = Learner { sampling, advantage, objective, divergence, updates: 1, top_entropy: 1.0 };
//! learner.learn(&rollout, &kept, &mut Steering::none())?;
//! # Ok(())
//! # }
//! ```

mod advantage;
mod entropy;
mod learner;
mod objective;
mod regularization;
mod rollout;

pub use advantage::{Advantage, Combination, Passes, Rewards, Scale};
pub use entropy::{EntropyBonus, Steering, high_entropy};
pub use learner::Learner;
pub use objective::{Level, Loss, Objective, Tokens, report_clipping};
pub use regularization::Divergence;
pub use rollout::{Kept, Rollout, Sampling};
