//! The identity of a run, and whether a checkpoint belongs to it.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tunebox_compute::device;
use tunebox_compute::precision::Purpose;

use super::environment::PlannedEnvironment;
use super::inputs::Inputs;
use super::method::PlannedMethod;
use super::verifier::PlannedVerifier;
use crate::checkpoint::{Identity, LENGTH_SETTINGS, State, settings_that_matter};
use crate::configuration::{ENDLESS, RunSettings};
use crate::error::{Error, path_error};
use crate::runs::start_option;

/// Adds to `known`, the identity from [`partial_identity`], what the opened inputs determine: the digests of model,
/// teachers, adapter, data and tokens; the tokens of the validation data, if a validation decides what the run leaves
/// (`keeps_best`) or when it ends (`train.patience`); and the kind of device with the number format of activations,
/// such as `cuda in bf16`. Fails if the adapter that the run continues cannot be read.
pub(super) fn complete_identity(
    known: Identity,
    settings: &RunSettings,
    inputs: &Inputs,
    keeps_best: bool,
) -> Result<Identity, Error> {
    let decides = keeps_best || settings.file.train.patience.is_some();
    let activations = inputs.policy.precision().dtype(Purpose::Activation);
    let device = device::describe(inputs.policy.parameters().device());
    let kind = device.split(':').next().unwrap_or_default();
    Ok(Identity {
        model: inputs.model_digest.clone(),
        adapter: super::model::adapter_digest(settings)?,
        teachers: inputs.teacher_digests.clone(),
        data: inputs.data.digest.clone(),
        tokens: inputs.data.token_digest.clone(),
        validation: inputs.validation.as_ref().filter(|_| decides).map(|data| data.token_digest.clone()),
        computed: Some(format!("{kind} in {}", activations.as_str())),
        ..known
    })
}

/// The part of a run's identity that is known before model and data are read: version, settings, and the digests of the
/// method, the verifiers and the environment. The other fields are empty.
pub(super) fn partial_identity(
    settings: &RunSettings,
    method: &PlannedMethod,
    verifiers: &[PlannedVerifier],
    environment: Option<&PlannedEnvironment>,
) -> Identity {
    let file = serde_json::to_value(&settings.file).unwrap_or_default();
    Identity {
        version: env!("CARGO_PKG_VERSION").into(),
        method: method.package.digest.clone(),
        verifiers: verifiers.iter().map(|verifier| verifier.digest().to_owned()).collect(),
        environment: environment.map(|environment| environment.package.digest.clone()),
        settings: settings_that_matter(&file),
        ..Identity::default()
    }
}

/// Checks that a checkpoint, given by its folder and state, belongs to the run with identity `now`: that
/// [`Identity::differences`] finds none; a longer run than before is none. Does nothing without a checkpoint. With
/// `settings.authoring` the method's component may differ. `name` is the run's name in the error.
///
/// # Errors
/// A checkpoint of another run; the message lists the differences.
pub(super) fn check_same_run(
    settings: &RunSettings,
    name: &str,
    checkpoint: Option<&(PathBuf, State)>,
    now: &Identity,
) -> Result<(), Error> {
    let Some((checkpoint, state)) = checkpoint else { return Ok(()) };
    let mut then = state.identity.clone();
    if settings.authoring {
        then.method.clone_from(&now.method);
    }
    copy_length(&mut then, now);
    let differences = then.differences(now);
    if differences.is_empty() {
        return Ok(());
    }
    Err(cannot_go_on(name, checkpoint, &differences.join("; ")))
}

/// Sets the settings of the run's length in `then` to those of `now`, which a resumed run may raise. Leaves one that
/// `now` lowers: with less patience the run might have ended earlier. A run without an end stays one, and no other
/// becomes one.
fn copy_length(then: &mut Identity, now: &Identity) {
    for key in LENGTH_SETTINGS {
        let number = |identity: &Identity| identity.settings.get(key).and_then(Value::as_u64);
        let (before, after) = (number(then), number(now));
        let is_lowered = match (before, after) {
            (Some(before), Some(after)) => after < before,
            (before, after) => key == "train.patience" && before.is_none() && after.is_some(),
        };
        let is_endless = |steps: Option<u64>| steps == Some(ENDLESS.into());
        if is_lowered || is_endless(before) != is_endless(after) {
            continue;
        }
        match now.settings.get(key) {
            Some(value) => then.settings.insert(key.to_owned(), value.clone()),
            None => then.settings.remove(key),
        };
    }
}

/// The error about the run `name`, whose checkpoint differs from what is asked for by `differences`.
pub(super) fn cannot_go_on(name: &str, checkpoint: &Path, differences: &str) -> Error {
    let run = checkpoint.ancestors().nth(2).unwrap_or(checkpoint);
    let from = start_option(checkpoint).map_or_else(String::new, |from| format!(" that begins there: {from}"));
    let hint = format!("set these back, as `{}` has them; or start a new run{from}", run.join("run.toml").display());
    let what = format!("the run `{name}` cannot go on: {differences}");
    let why = "a resumed run ends in the same bits as one never stopped, or not at all";
    path_error(checkpoint, what, why, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_may_have_more_steps_and_more_patience_than_before_and_not_less() {
        let with = |key: &str, value: Option<u64>| Identity {
            settings: value.map(|value| (format!("train.{key}"), value.into())).into_iter().collect(),
            ..Identity::default()
        };
        let endless = u64::from(ENDLESS);
        for (key, then, now, is_same) in [
            ("steps", Some(20), Some(40), true),
            ("steps", Some(20), None, true),
            ("steps", Some(20), Some(10), false),
            ("steps", Some(20), Some(endless), false),
            ("epochs", None, Some(5), true),
            ("patience", Some(2), Some(3), true),
            ("patience", Some(2), None, true),
            ("patience", Some(2), Some(1), false),
            ("patience", None, Some(9), false),
            ("batch", Some(2), Some(3), false),
        ] {
            let (mut then, now) = (with(key, then), with(key, now));
            copy_length(&mut then, &now);
            assert_eq!(then.differences(&now).is_empty(), is_same, "{key} {then:?} {now:?}");
        }
    }

    #[test]
    fn hint_names_the_checkpoint_as_a_new_start_if_it_holds_an_adapter() {
        let settings = RunSettings::from_overrides(&["model.path=m", "data.path=d", "method.use=lora"]).unwrap();
        let run = tempfile::tempdir().unwrap();
        let checkpoint = run.path().join("steps/000010");
        std::fs::create_dir_all(&checkpoint).unwrap();
        let state = State::without_method_state(10, 10, Identity::default());
        let now = Identity { model: "another".into(), ..Identity::default() };
        let hint = || {
            let checkpoint = Some((checkpoint.clone(), state.clone()));
            let error = check_same_run(&settings, "a", checkpoint.as_ref(), &now).unwrap_err();
            tunebox_foundation::explain::Explain::hint(&error).unwrap()
        };
        let back =
            format!("set these back, as `{}` has them; or start a new run", run.path().join("run.toml").display());
        assert_eq!(hint(), back, "a checkpoint of all weights");
        std::fs::write(checkpoint.join("adapter_config.json"), "{}").unwrap();
        assert_eq!(hint(), back + &format!(" that begins there: `--set model.adapter={}`", checkpoint.display()));
    }
}
