//! What makes a run this run, and whether a checkpoint is one of it.

use tunebox_compute::device;
use tunebox_compute::precision::Purpose;
use tunebox_model::Policy;

use super::folder::Destination;
use super::{PlannedMethod, PlannedVerifier};
use crate::checkpoint::{Identity, settings_that_matter};
use crate::configuration::RunSettings;
use crate::data::Dataset;
use crate::error::Error;

/// What makes the run this run.
pub(super) fn identity(
    settings: &RunSettings,
    policy: &Policy,
    model: String,
    data: &Dataset,
    method: &PlannedMethod,
    verifiers: &[PlannedVerifier],
) -> Result<Identity, Error> {
    let activations = policy.precision().dtype(Purpose::Activation);
    let kind = device::describe(policy.parameters().device()).split(':').next().unwrap_or_default().to_owned();
    Ok(Identity {
        model,
        adapter: super::model::adapter(settings)?,
        data: data.digest.clone(),
        tokens: data.token_digest.clone(),
        computed: Some(format!("{kind} in {}", activations.as_str())),
        ..known_beforehand(settings, method, verifiers)
    })
}

/// What of a run's identity is known before model and data are read.
pub(super) fn known_beforehand(
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

/// Refuses to go on from the checkpoint of another run. That of an author may have another version of its method since.
pub(super) fn same_run(settings: &RunSettings, place: &Destination, now: &Identity) -> Result<(), Error> {
    let Some((checkpoint, state)) = &place.checkpoint else { return Ok(()) };
    let mut then = state.identity.clone();
    if settings.authoring {
        then.method.clone_from(&now.method);
    }
    let differences = then.differences(now);
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::Different { name: place.name.clone(), checkpoint: checkpoint.clone(), differences })
}
