//! The identity of a run, and whether a checkpoint belongs to it.

use std::path::PathBuf;

use tunebox_compute::device;
use tunebox_compute::precision::Purpose;

use super::inputs::Inputs;
use super::method::{PlannedMethod, PlannedVerifier};
use crate::checkpoint::{Identity, State, settings_that_matter};
use crate::configuration::RunSettings;
use crate::error::{Error, path_error};
use crate::runs::start_option;

/// Adds to `known`, the identity from [`partial_identity`], what the opened inputs determine: the digests of model,
/// adapter, data and tokens, and the kind of device with the number format of activations, such as `cuda in bf16`.
/// Fails if the adapter that the run continues cannot be read.
pub(super) fn complete_identity(known: Identity, settings: &RunSettings, inputs: &Inputs) -> Result<Identity, Error> {
    let activations = inputs.policy.precision().dtype(Purpose::Activation);
    let device = device::describe(inputs.policy.parameters().device());
    let kind = device.split(':').next().unwrap_or_default();
    Ok(Identity {
        model: inputs.model_digest.clone(),
        adapter: super::model::adapter_digest(settings)?,
        data: inputs.data.digest.clone(),
        tokens: inputs.data.token_digest.clone(),
        computed: Some(format!("{kind} in {}", activations.as_str())),
        ..known
    })
}

/// The part of a run's identity that is known before model and data are read: version, settings, and the digests of the
/// method and the verifiers. The other fields are empty.
pub(super) fn partial_identity(
    settings: &RunSettings,
    method: &PlannedMethod,
    verifiers: &[PlannedVerifier],
) -> Identity {
    let file = serde_json::to_value(&settings.file).unwrap_or_default();
    Identity {
        version: env!("CARGO_PKG_VERSION").into(),
        method: method.package.digest.clone(),
        verifiers: verifiers.iter().map(|verifier| verifier.package.digest.clone()).collect(),
        settings: settings_that_matter(&file),
        ..Identity::default()
    }
}

/// Checks that a checkpoint, given by its folder and state, belongs to the run with identity `now`: that
/// [`Identity::differences`] finds none. Does nothing without a checkpoint. With `settings.authoring` the method's
/// component may differ. `name` is the run's name in the error.
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
    let differences = then.differences(now);
    if differences.is_empty() {
        return Ok(());
    }
    let run = checkpoint.ancestors().nth(2).unwrap_or(checkpoint);
    let from = start_option(checkpoint).map_or_else(String::new, |from| format!(" that begins there: {from}"));
    let hint = format!("set these back, as `{}` has them; or start a new run{from}", run.join("run.toml").display());
    let what = format!("the run `{name}` cannot go on: {}", differences.join("; "));
    let why = "a resumed run ends in the same bits as one never stopped, or not at all";
    Err(path_error(checkpoint, what, why, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_names_the_checkpoint_as_a_new_start_if_it_holds_an_adapter() {
        let settings = ["model.path=m", "data.path=d", "method.use=lora"].map(str::to_owned);
        let settings = RunSettings::from_overrides(&settings).unwrap();
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
