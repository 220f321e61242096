//! The number formats of a run's model, and the runs that cannot have them.

use tunebox_compute::Device;
use tunebox_compute::precision::{Base, Precision, PrecisionRequest};
use tunebox_foundation::explain::Explanation;
use tunebox_model::adapter::AdapterKind;
use tunebox_sandbox::Value;

use super::method::PlannedMethod;
use crate::configuration::{RunSettings, Underline};
use crate::error::Error;
use crate::lock;

/// The number formats that the run file asks for, checked against the device.
///
/// # Errors
/// A format that the device does not have, or NF4 with training of all weights.
pub(super) fn requested(settings: &RunSettings, device: &Device) -> Result<PrecisionRequest, Error> {
    reject_nf4(settings, full_training_conflict(settings))?;
    let requested = PrecisionRequest { base: settings.file.model.precision, compute: settings.file.train.compute };
    match Precision::new(requested, device) {
        Ok(_) => Ok(requested),
        Err(error) => {
            let hint = "leave `train.compute` out, or name another `train.device`";
            Err(settings.conflict("train.compute", Underline::Value, &error.to_string(), hint))
        }
    }
}

/// Fails if the run keeps its base in NF4 and either trains all weights or edits weights in a way that writes a whole
/// model.
pub(super) fn check(settings: &RunSettings, method: &PlannedMethod) -> Result<(), Error> {
    reject_nf4(settings, nf4_conflict(settings, method))
}

/// Fails with `conflict`, located at `model.precision`, if there is one and the run keeps its base in NF4.
fn reject_nf4(settings: &RunSettings, conflict: Option<Explanation>) -> Result<(), Error> {
    let conflict = conflict.filter(|_| settings.file.model.precision == Base::Nf4);
    conflict.map_or(Ok(()), |problem| Err(settings.error("model.precision", Underline::Key, problem)))
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
    let form = method.settings.iter().find(|(name, _)| name == "apply").filter(|_| method.edits());
    let beside = settings.file.model.adapter.is_some() || method.learns();
    let (what, hint) = match form {
        Some((_, Value::Text(form))) if form == "weights" => {
            ("the method writes a model of edited weights", ", or set `method.apply` to \"adapter\"")
        }
        Some((_, Value::Text(form))) if form == "adapter" && beside => {
            ("edits beside an adapter are written as a whole model", "")
        }
        _ => return None,
    };
    let what = format!("{what}, and with `model.precision` all of it would be rounded to NF4");
    Some(Explanation::new("config", what).with_hint(format!("leave `model.precision` out{hint}")))
}

/// A warning if the continued adapter was trained on a base in another number format than this run's. `None` without a
/// continued adapter, if the formats are equal, or if the adapter is not in a run's folder.
pub(super) fn changed_base_warning(settings: &RunSettings) -> Result<Option<String>, Error> {
    let Some(written) = &settings.file.model.adapter else { return Ok(None) };
    let (then, now) = (lock::base_precision(&settings.path("model.adapter", written))?, settings.file.model.precision);
    let name = |base: Base| if base.is_stored() { "as in its files" } else { "in nf4" };
    Ok(then.filter(|then| *then != now).map(|then| {
        let (then, now) = (name(then), name(now));
        format!("the adapter was trained on a base {then}, this run has it {now}: see `model.precision`")
    }))
}
