//! The number formats of a run's model, and the runs that cannot have them.

use tunebox_compute::Device;
use tunebox_compute::precision::{Base, Precision, PrecisionRequest};
use tunebox_foundation::explain::Explanation;
use tunebox_model::adapter::AdapterKind;
use tunebox_sandbox::Value;

use super::method::PlannedMethod;
use crate::configuration::{BasePrecision, RunSettings, Underline};
use crate::error::Error;
use crate::lock;

/// The number formats that the run file asks for, checked against the device.
///
/// # Errors
/// A format that the device does not have, or NF4 with training of all weights.
pub(super) fn requested(settings: &RunSettings, device: &Device) -> Result<PrecisionRequest, Error> {
    if let (Some(_), Some(problem)) = (settings.file.model.precision, full_training_conflict(settings)) {
        return Err(settings.error("model.precision", Underline::Key, problem));
    }
    let base = BasePrecision::base(settings.file.model.precision);
    let requested = PrecisionRequest { base, compute: settings.file.train.compute };
    match Precision::new(requested, device) {
        Ok(_) => Ok(requested),
        Err(error) => {
            let hint = "leave `train.compute` out, or name another `train.device`";
            Err(settings.conflict("train.compute", Underline::Value, error.to_string(), hint))
        }
    }
}

/// Fails if the run sets `model.precision` and either trains all weights or edits weights in a way that writes a whole
/// model.
pub(super) fn check(settings: &RunSettings, method: &PlannedMethod) -> Result<(), Error> {
    match nf4_conflict(settings, method).filter(|_| settings.file.model.precision.is_some()) {
        Some(problem) => Err(settings.error("model.precision", Underline::Key, problem)),
        None => Ok(()),
    }
}

/// Why the base of a run cannot be kept in NF4: the run trains all weights, or writes a whole edited model. `None` if
/// it can.
pub(super) fn nf4_conflict(settings: &RunSettings, method: &PlannedMethod) -> Option<Explanation> {
    full_training_conflict(settings).or_else(|| edit_conflict(settings, method))
}

/// The conflict of NF4 with training all weights; `None` if an adapter is trained.
fn full_training_conflict(settings: &RunSettings) -> Option<Explanation> {
    let what = "`model.precision` is for a frozen base, and `train.adapter.kind = \"full\"` trains all of it";
    let is_full = settings.file.train.adapter.kind == AdapterKind::Full;
    is_full.then(|| Explanation::new("config", what).with_hint("leave one of them out"))
}

/// The conflict of NF4 with a method that edits weights. Edited weights, and edits beside an adapter, are written as a
/// whole model, whose other matrices would be rounded to NF4. The method's setting `apply` names its output; `None` for
/// a method without edits, without that setting, or whose edits alone form the adapter.
fn edit_conflict(settings: &RunSettings, method: &PlannedMethod) -> Option<Explanation> {
    if !method.edits() {
        return None;
    }
    let form = method.settings.iter().find_map(|(name, value)| match value {
        Value::Text(form) if name == "apply" => Some(form.as_str()),
        _ => None,
    });
    let beside = settings.file.model.adapter.is_some() || method.learns();
    let (what, hint) = match form {
        Some("weights") => (
            "the method writes a model of edited weights, and with `model.precision` all of it would be rounded to NF4",
            "leave `model.precision` out, or set `method.apply` to \"adapter\"",
        ),
        Some("adapter") if beside => (
            "edits beside an adapter are written as a whole model, and with `model.precision` all of it would be rounded to NF4",
            "leave `model.precision` out",
        ),
        _ => return None,
    };
    Some(Explanation::new("config", what).with_hint(hint))
}

/// A warning if the continued adapter was trained on a base in another number format than this run's. `None` without a
/// continued adapter, if the formats are equal, or if the adapter is not in a run's folder.
pub(super) fn changed_base_warning(settings: &RunSettings) -> Result<Option<String>, Error> {
    let Some(written) = &settings.file.model.adapter else { return Ok(None) };
    let then = lock::base_precision(&settings.path("model.adapter", written))?;
    let now = BasePrecision::base(settings.file.model.precision);
    let name = |base| if base == Base::Nf4 { "in nf4" } else { "as in its files" };
    Ok(then.filter(|then| *then != now).map(|then| {
        format!(
            "the adapter was trained on a base {}, this run has it {}: see `model.precision`",
            name(then),
            name(now)
        )
    }))
}
