//! Decides whether the artifact of a run is written from the best validation, and checks the settings about that.

use super::folder::Destination;
use super::method::PlannedMethod;
use crate::checkpoint::{self, is_checkpoint};
use crate::configuration::{RunSettings, Underline};
use crate::data::{Dataset, Shape};
use crate::error::{Error, path_error};

/// Returns whether the run keeps the weights of its best validation and writes its artifact from them: as
/// `train.keep-best` says, else if the method trains and the validation data is of a shape whose score the training
/// improves. Pairs and labeled answers are not: their methods may raise the loss of the better answers while they learn
/// what is asked.
///
/// # Errors
/// `train.keep-best = true` or `train.patience` without validation data, or with a method that trains nothing.
pub(super) fn keeps_best(
    settings: &RunSettings,
    method: &PlannedMethod,
    validation: Option<&Dataset>,
) -> Result<bool, Error> {
    let train = &settings.file.train;
    let given = [("train.keep-best", train.keep_best == Some(true)), ("train.patience", train.patience.is_some())];
    let improves = |data: &Dataset| !matches!(data.shape, Shape::Preference | Shape::Unpaired);
    let default = method.learns() && validation.is_some_and(improves);
    let Some((key, _)) = given.into_iter().find(|(_, is_given)| *is_given) else {
        return Ok(train.keep_best.unwrap_or(default));
    };
    if !method.learns() {
        let what =
            format!("`{}` trains nothing, so no step of it is better than another", method.package.manifest.name);
        return Err(settings.conflict(key, Underline::Key, &what, &format!("remove `{key}`")));
    }
    if validation.is_none() {
        let what = format!("`{key}` compares scores of validation data, and the run has none");
        let hint = format!(
            "`--set data.validation=0.1` holds back a tenth of the records, `--set data.validation=FILE` names \
             others; or remove `{key}`"
        );
        return Err(settings.conflict(key, Underline::Key, &what, &hint));
    }
    Ok(train.keep_best.unwrap_or(default))
}

/// Fails if the run keeps the best validation (`keeps_best`) and the checkpoint that it resumes names one whose own
/// checkpoint is gone: those weights would ship. Does nothing for a new run.
pub(super) fn check_best_checkpoint(destination: &Destination, keeps_best: bool) -> Result<(), Error> {
    let best = destination.checkpoint.as_ref().and_then(|(_, state)| state.validations.best).filter(|_| keeps_best);
    let Some(step) = best.map(|best| best.step) else { return Ok(()) };
    let folder = checkpoint::folder(&destination.folder, step);
    if is_checkpoint(&folder) {
        return Ok(());
    }
    let what = format!("the run `{}` cannot go on: the checkpoint of its best validation is missing", destination.name);
    let why = format!("the weights of step {step} are what ships, unless a later step is better");
    Err(path_error(&folder, what, why, "put the folder back, or start a new run"))
}
