//! Converts rewards to advantages: how much better a completion is than the others of its prompt.
//!
//! Rewards are few numbers, so this runs in the method itself, in `f64`.

use crate::tensor::from_list;
use crate::{Choice, Settings, Tensor};

/// Added to a standard deviation before it divides, as in the reference.
const FLOOR: f64 = 1e-4;

/// How rewards become advantages.
#[derive(Settings, Clone)]
pub struct Advantage {
    /// What an advantage is divided by: `group`, the standard deviation of its group (n − 1, plus 1e-4); `batch`,
    /// that of all completions of the update; `none`, nothing (Dr. GRPO).
    #[setting(default = "group")]
    pub scale_rewards: Scale,

    /// How several rewards become one: `sum-then-normalize`, their weighted sum; `normalize-then-sum`, each
    /// normalized in its group, then summed and normalized over the update (GDPO).
    #[setting(default = "sum-then-normalize")]
    pub combine_rewards: Combination,
}

/// What an advantage is divided by.
#[derive(Choice, Clone, Copy, PartialEq, Debug)]
pub enum Scale {
    /// The standard deviation of its group.
    Group,
    /// The standard deviation of the update.
    Batch,
    /// Nothing.
    None,
}

/// How several rewards become one.
#[derive(Choice, Clone, Copy, PartialEq, Debug)]
pub enum Combination {
    /// Their weighted sum.
    SumThenNormalize,
    /// Each normalized, then the weighted sum.
    NormalizeThenSum,
}

/// The rewards of an update: a row per completion, a column per verifier, NaN where one could not judge.
///
/// ```
/// use tunebox::policy_gradient::{Advantage, Rewards};
///
/// // Two prompts with two completions each, one verifier of weight 1.
/// let rewards = Rewards::new(&[1.0, 0.0, 0.5, 2.0], &[1.0], 2);
/// assert_eq!(rewards.passes(1.0).at_k, 1.0);
/// assert_eq!(Advantage::scaled(false).of(&rewards), [0.5, -0.5, -0.75, 0.75]);
/// ```
pub struct Rewards {
    values: Vec<f64>,
    weights: Vec<f64>,
    /// Completions of a prompt, contiguous.
    each: usize,
}

impl Rewards {
    /// Creates rewards from row-major values, a weight for each verifier, and the number of completions of each prompt.
    pub fn new(values: &[f32], weights: &[f32], each: usize) -> Self {
        let wide = |numbers: &[f32]| numbers.iter().map(|number| f64::from(*number)).collect();
        Self { values: wide(values), weights: wide(weights), each: each.max(1) }
    }

    /// The weighted sum of a row over the verifiers that judged it; NaN where none did.
    pub fn combined(&self) -> Vec<f64> {
        self.rows().map(|row| weighted_sum_or_nan(row, &self.weights)).collect()
    }

    /// The rewards of all rows by the verifier with this number, from 0.
    pub fn column(&self, number: usize) -> Vec<f64> {
        self.rows().map(|row| row[number]).collect()
    }

    /// Number of completions of each prompt.
    pub fn each(&self) -> usize {
        self.each
    }

    /// The fractions of completions and of prompts that pass: where the first verifier gives `threshold` or more.
    pub fn passes(&self, threshold: f32) -> Passes {
        let passed: Vec<bool> = self.column(0).iter().map(|verdict| *verdict >= f64::from(threshold)).collect();
        let share = |count: usize, of: usize| count as f32 / of.max(1) as f32;
        let groups = passed.chunks(self.each);
        Passes {
            at_one: share(passed.iter().filter(|passed| **passed).count(), passed.len()),
            at_k: share(groups.clone().filter(|group| group.contains(&true)).count(), groups.len()),
        }
    }

    /// For each row, whether the rewards of its group differ (deviation above 1e-8, or fewer than two judged).
    pub fn differing(&self) -> Vec<bool> {
        let combined = self.combined();
        let groups = combined.chunks(self.each);
        groups.flat_map(|group| vec![deviation(group).is_nan() || deviation(group) > 1e-8; group.len()]).collect()
    }

    /// The row numbers of the first groups whose rewards differ, at most `groups` groups.
    pub fn first_differing(&self, groups: u32) -> Vec<u32> {
        let differing = self.differing();
        let starts = (0..differing.len()).step_by(self.each).filter(|start| differing[*start]);
        starts.take(groups as usize).flat_map(|start| start..start + self.each).map(|row| row as u32).collect()
    }

    /// The rewards of the rows with these numbers, which must be whole groups.
    #[must_use]
    pub fn select(&self, rows: &[u32]) -> Self {
        let columns = self.weights.len();
        let row = |row: &u32| self.values[*row as usize * columns..][..columns].to_vec();
        Self { values: rows.iter().flat_map(row).collect(), weights: self.weights.clone(), each: self.each }
    }

    /// The rewards of each completion, one for each verifier.
    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks(self.weights.len().max(1))
    }
}

/// How often completions pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Passes {
    /// The share of all completions.
    pub at_one: f32,
    /// The share of prompts of which at least one completion passes.
    pub at_k: f32,
}

impl Advantage {
    /// The advantage of the weighted sum of rewards, divided by the group's standard deviation if `scaled`.
    pub fn scaled(scaled: bool) -> Self {
        let scale_rewards = if scaled { Scale::Group } else { Scale::None };
        Self { scale_rewards, combine_rewards: Combination::SumThenNormalize }
    }

    /// Computes the advantage of every row; 0 where no verifier could judge.
    pub fn of(&self, rewards: &Rewards) -> Vec<f32> {
        let advantages = match self.combine_rewards {
            Combination::SumThenNormalize => self.normalize_sums(rewards),
            Combination::NormalizeThenSum => sum_normalized(rewards),
        };
        advantages.into_iter().map(|value| if value.is_finite() { value as f32 } else { 0.0 }).collect()
    }

    /// The advantages of [`of`](Self::of) as a tensor `[rows, 1]`.
    #[track_caller]
    pub fn tensor(&self, rewards: &Rewards) -> Tensor {
        let advantages = self.of(rewards);
        from_list(&advantages, &[advantages.len() as u32, 1])
    }

    /// Normalizes the weighted sums of the rewards in their groups: (sum − mean) ÷ the deviation that `scale_rewards`
    /// names.
    fn normalize_sums(&self, rewards: &Rewards) -> Vec<f64> {
        let combined = rewards.combined();
        let whole = deviation(&combined);
        let of_group = |group: &[f64]| {
            let divisor = match self.scale_rewards {
                Scale::Group => deviation(group) + FLOOR,
                Scale::Batch => whole + FLOOR,
                Scale::None => 1.0,
            };
            let center = mean(group);
            group.iter().map(|reward| (reward - center) / divisor).collect::<Vec<f64>>()
        };
        combined.chunks(rewards.each).flat_map(of_group).collect()
    }
}

/// Normalizes the rewards of each verifier in their groups, sums them by their weights, and normalizes these sums over
/// the update. NaN where no verifier judged.
fn sum_normalized(rewards: &Rewards) -> Vec<f64> {
    let columns = rewards.weights.len();
    let mut scores = vec![f64::NAN; rewards.values.len()];
    for column in 0..columns {
        let values = rewards.column(column);
        for (group, chunk) in values.chunks(rewards.each).enumerate() {
            let (center, spread) = (mean(chunk), deviation(chunk) + FLOOR);
            for (at, value) in chunk.iter().enumerate() {
                scores[(group * rewards.each + at) * columns + column] = (value - center) / spread;
            }
        }
    }
    let sums = scores
        .chunks(columns.max(1))
        .zip(rewards.combined())
        .map(|(row, judged)| if judged.is_nan() { f64::NAN } else { weighted_sum(row, &rewards.weights) });
    let sums: Vec<f64> = sums.collect();
    let (center, spread) = (mean(&sums), deviation(&sums) + FLOOR);
    sums.iter().map(|sum| (sum - center) / spread).collect()
}

/// Σ weight · value over the values that are not NaN; NaN if all are.
fn weighted_sum_or_nan(row: &[f64], weights: &[f64]) -> f64 {
    if row.iter().all(|value| value.is_nan()) {
        return f64::NAN;
    }
    weighted_sum(row, weights)
}

/// Σ weight · value over the values that are not NaN; 0 if all are.
fn weighted_sum(row: &[f64], weights: &[f64]) -> f64 {
    row.iter().zip(weights).filter(|(value, _)| !value.is_nan()).map(|(value, weight)| value * weight).sum()
}

/// The mean of the numbers that are not NaN; NaN if there are none.
pub(super) fn mean(values: &[f64]) -> f64 {
    let (sum, count) = numbers(values).fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

/// The standard deviation with divisor n − 1 of the numbers that are not NaN; NaN for fewer than two.
pub(super) fn deviation(values: &[f64]) -> f64 {
    let center = mean(values);
    let (sum, count) =
        numbers(values).fold((0.0, 0.0), |(sum, count), value| (sum + (value - center).powi(2), count + 1.0));
    if count < 2.0 { f64::NAN } else { (sum / (count - 1.0)).sqrt() }
}

/// The values that are not NaN.
fn numbers(values: &[f64]) -> impl Iterator<Item = f64> {
    values.iter().copied().filter(|value| !value.is_nan())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advantage(scale: Scale, combine: Combination) -> Advantage {
        Advantage { scale_rewards: scale, combine_rewards: combine }
    }

    fn close(found: &[f32], wanted: &[f64]) {
        let far =
            found.iter().zip(wanted).any(|(found, wanted)| (f64::from(*found) - wanted).abs() > 1e-6 * wanted.abs());
        assert!(found.len() == wanted.len() && !far, "{found:?}, wanted {wanted:?}");
    }

    #[test]
    fn advantages_are_those_of_the_reference() {
        let rewards = Rewards::new(&[1.0, 0.0, 0.5, 2.0], &[1.0], 2);
        let of = |scale| advantage(scale, Combination::SumThenNormalize).of(&rewards);
        close(&of(Scale::Group), &[0.707006795, -0.707006795, -0.707040121, 0.707040121]);
        close(&of(Scale::Batch), &[0.58547148, -0.58547148, -0.878207221, 0.878207221]);
        close(&of(Scale::None), &[0.5, -0.5, -0.75, 0.75]);
    }

    #[test]
    fn a_completion_that_nobody_could_judge_moves_nothing() {
        let rewards = Rewards::new(&[1.0, f32::NAN, 0.0, 1.0, 0.0, 0.0], &[1.0], 3);
        let found = advantage(Scale::None, Combination::SumThenNormalize).of(&rewards);
        close(&found, &[0.5, 0.0, -0.5, 2.0 / 3.0, -1.0 / 3.0, -1.0 / 3.0]);
    }

    #[test]
    fn a_verifier_that_abstains_leaves_the_others_their_weight() {
        let rewards = Rewards::new(&[1.0, f32::NAN, 1.0, 1.0], &[2.0, 0.5], 2);
        assert_eq!(rewards.combined(), [2.0, 2.5]);
    }

    #[test]
    fn rewards_that_are_normalised_first_weigh_alike_whatever_their_size() {
        let rewards = Rewards::new(&[1.0, 0.0, 0.0, 0.0, 0.0, 500.0, 0.0, 1000.0], &[1.0, 1.0], 2);
        let found = advantage(Scale::Group, Combination::NormalizeThenSum).of(&rewards);
        let wanted = [0.8659, -0.8659, -0.8660, 0.8660];
        assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 2e-4), "{found:?}");
    }

    #[test]
    fn a_group_passes_when_one_of_it_does() {
        let rewards = Rewards::new(&[1.0, 0.0, 0.0, 0.0, f32::NAN, 0.5], &[1.0], 2);
        assert_eq!(rewards.passes(0.5), Passes { at_one: 2.0 / 6.0, at_k: 2.0 / 3.0 });
    }

    #[test]
    fn groups_that_differ_are_taken_in_their_order_until_there_are_enough() {
        let rewards = Rewards::new(&[1.0, 1.0, 0.0, 1.0, 2.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[1.0], 2);
        assert_eq!(rewards.first_differing(2), [2, 3, 6, 7]);
        assert_eq!(rewards.first_differing(9), [2, 3, 6, 7, 8, 9]);
        assert_eq!(rewards.select(&[6, 7]).combined(), [3.0, 4.0]);
        assert!(Rewards::new(&[1.0, 1.0], &[1.0], 2).first_differing(1).is_empty());
    }

    #[test]
    fn a_group_of_equal_rewards_teaches_nothing() {
        let rewards = Rewards::new(&[1.0, 1.0, 0.0, 1.0], &[1.0], 2);
        assert_eq!(rewards.differing(), [false, false, true, true]);
    }
}
