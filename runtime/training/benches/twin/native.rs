//! The methods `lora` and `dpo` with their default settings, without a sandbox, written by hand against the model.
//!
//! Losses and their gradients are in closed form, with neither an autograd graph nor handles, as for code that needs no
//! other loss. So the measured overhead of a component includes the cost of the general tensor library, not only of the
//! sandbox.

use std::sync::Arc;

use tunebox_compute::fused::{Tap, TapSet};
use tunebox_compute::{Device, Tensor};
use tunebox_model::Rows;
use tunebox_model::policy::{Scored, Seeds, View, select_rows};
use tunebox_sandbox::{Batch, ScoreRequest};
use tunebox_training::TrainState;

use super::Outcome;

/// The default β of `dpo`, the factor of the differences of log-ratios in its loss.
const BETA: f32 = 0.1;

/// What a step reports, by the names of the method's manifest.
pub(crate) type Numbers = Vec<(&'static str, f32)>;

/// Executes a step of `lora` up to the gradient, without the update. The loss is −Σ log p(target) / targets of the
/// window. Returns the reported numbers by name.
pub(crate) fn supervised(train_state: &mut TrainState, batch: &Batch) -> Outcome<Numbers> {
    let rows = side(batch, "example")?;
    let targets = targets(batch, "example");
    let taps = TapSet::of(&[Tap::Entropy, Tap::TopOne]);
    let mut scores = train_state.score(rows, &request(View::Policy, taps))?;
    let loss = -sum(scores.tap(Tap::Logprob)?)? / targets;
    let slopes = vec![-(1.0 / targets); rows.count()];
    backward(train_state, &mut scores, &slopes)?;
    Ok(vec![
        ("loss", loss),
        ("entropy", sum(scores.tap(Tap::Entropy)?)? / targets),
        ("accuracy", sum(scores.tap(Tap::TopOne)?)? / targets),
    ])
}

/// Executes a step of `dpo` up to the gradient, without the update. The loss is the mean over the window's pairs of
/// −log σ(β·(r(chosen) − r(rejected))) with r = log π − log π_ref. Returns the reported numbers by name.
pub(crate) fn preference(train_state: &mut TrainState, batch: &Batch) -> Outcome<Numbers> {
    let (better, worse) = (side(batch, "chosen")?, side(batch, "rejected")?);
    let taps = TapSet::of(&[Tap::Entropy, Tap::MeanLogit, Tap::TopOne]);
    let rows = interleaved(better, worse)?;
    let mut scores = train_state.score(&rows, &request(View::Policy, taps))?;
    let before = train_state.score(&rows, &request(View::Reference, TapSet::default()))?;
    let (chosen, rejected) = (part(&scores, 0, better)?, part(&scores, 1, worse)?);
    let (before_chosen, before_rejected) = (part(&before, 0, better)?, part(&before, 1, worse)?);

    let (wins, losses) = (answers(&chosen)?, answers(&rejected)?);
    let pairs = batch.window_size as f32;
    let win_ratios = differences(&wins, &answers(&before_chosen)?);
    let loss_ratios = differences(&losses, &answers(&before_rejected)?);
    let margins: Vec<f32> = differences(&win_ratios, &loss_ratios).iter().map(|margin| margin * BETA).collect();
    let loss = margins.iter().map(|margin| softplus(-margin)).sum::<f32>() / pairs;
    // The gradient of −log σ(x) is −σ(−x).
    let slopes: Vec<f32> = margins.iter().map(|margin| -(1.0 / pairs) * (1.0 / (1.0 + margin.exp())) * BETA).collect();
    let slopes: Vec<f32> = slopes.iter().flat_map(|slope| [*slope, -slope]).collect();
    backward(train_state, &mut scores, &slopes)?;

    let won = win_ratios.iter().zip(&loss_ratios).filter(|(win, loss)| win > loss).count();
    let mean = |numbers: &[f32], factor: f32| numbers.iter().map(|number| number * factor).sum::<f32>() / pairs;
    let (chosen_targets, rejected_targets) = (targets(batch, "chosen"), targets(batch, "rejected"));
    let entropy = sum(chosen.tap(Tap::Entropy)?)? + sum(rejected.tap(Tap::Entropy)?)?;
    Ok(vec![
        ("loss", loss),
        ("rewards-chosen", mean(&win_ratios, BETA)),
        ("rewards-rejected", mean(&loss_ratios, BETA)),
        ("rewards-margins", mean(&margins, 1.0)),
        ("rewards-accuracies", won as f32 / pairs),
        ("logps-chosen", mean(&wins, 1.0)),
        ("logps-rejected", mean(&losses, 1.0)),
        ("logits-chosen", sum(chosen.tap(Tap::MeanLogit)?)? / chosen_targets),
        ("logits-rejected", sum(rejected.tap(Tap::MeanLogit)?)? / rejected_targets),
        ("entropy", entropy / (chosen_targets + rejected_targets)),
        ("mean-token-accuracy", sum(chosen.tap(Tap::TopOne)?)? / chosen_targets),
    ])
}

/// Joins the rows of both sides alternately (chosen, rejected, chosen, …), so that the model computes the common
/// beginning of a pair once. Ends with the shorter side. A session joins the rows that a component scores in this
/// order, too.
fn interleaved(chosen: &Rows, rejected: &Rows) -> Outcome<Arc<Rows>> {
    let ids = chosen.ids.iter().zip(&rejected.ids).flat_map(|(one, other)| [one.clone(), other.clone()]);
    let marks = chosen.targets.iter().zip(&rejected.targets).flat_map(|(one, other)| [one.clone(), other.clone()]);
    Ok(Arc::new(Rows::new(ids.collect(), marks.collect())?))
}

/// The scores of one side of interleaved rows: every other row from `first` (0 or 1) on. `rows` are the rows of that
/// side alone.
fn part(scores: &Scored, first: u32, rows: &Arc<Rows>) -> Outcome<Scored> {
    let numbers: Vec<u32> = (0..rows.count() as u32).map(|row| 2 * row + first).collect();
    let taps = select_rows(&scores.taps, &numbers, rows.width())?;
    Ok(Scored::of_taps(scores.view.clone(), Arc::clone(rows), taps, scores.generation))
}

/// The request to score a view with these taps at temperature 1. Saves activations for a backward pass only for the
/// policy.
fn request(view: View, taps: TapSet) -> ScoreRequest {
    let learning = view == View::Policy;
    ScoreRequest { view, taps: taps.into(), temperature: 1.0, learning }
}

/// Accumulates the gradient of a loss whose derivative by the log-probability of every target of a row is that row's
/// entry of `slopes`.
fn backward(train_state: &mut TrainState, scores: &mut Scored, slopes: &[f32]) -> Outcome<()> {
    let rows = &scores.rows;
    let width = rows.width();
    let mut seeds = vec![0.0; rows.count() * width];
    for ((row, marks), slope) in seeds.chunks_exact_mut(width.max(1)).zip(&rows.targets).zip(slopes) {
        row.iter_mut().zip(marks).filter(|(_, mark)| **mark).for_each(|(seed, _)| *seed = *slope);
    }
    let seeds = Tensor::from_vec(seeds, (rows.count(), width), &Device::Cpu)?;
    Ok(train_state.backward(scores, &Seeds::from_iter([(Tap::Logprob, seeds)]))?)
}

/// Computes log(1 + eˣ) without overflow.
fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// The summed log-probability of each row's targets, in nats.
fn answers(scores: &Scored) -> Outcome<Vec<f32>> {
    Ok(scores.tap(Tap::Logprob)?.sum(1)?.to_vec1()?)
}

/// The differences `left` − `right`, number by number.
fn differences(left: &[f32], right: &[f32]) -> Vec<f32> {
    left.iter().zip(right).map(|(left, right)| left - right).collect()
}

/// The rows of the side `name` of a batch; fails if it has none.
fn side<'a>(batch: &'a Batch, name: &str) -> Outcome<&'a Arc<Rows>> {
    let found = batch.sides.iter().find(|(side, _)| side == name);
    Ok(found.map(|(_, rows)| rows).ok_or_else(|| format!("the batch has no side `{name}`"))?)
}

/// Number of targets on a side in the whole window; 1 if the side is unknown.
fn targets(batch: &Batch, side: &str) -> f32 {
    batch.window_targets.get(side).copied().unwrap_or(1) as f32
}

/// The sum of all elements of a tensor.
fn sum(numbers: &Tensor) -> Outcome<f32> {
    Ok(numbers.sum_all()?.to_scalar()?)
}
