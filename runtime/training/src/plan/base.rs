//! What the frozen base of a run is kept in and its activations are computed in, and which runs cannot have it so.

use tunebox_compute::Device;
use tunebox_compute::precision::{Base, Precision, PrecisionRequest};
use tunebox_sandbox::Value;

use super::PlannedMethod;
use crate::configuration::{BasePrecision, Half, KindChoice, Problem, RunSettings};
use crate::error::Error;
use crate::lock;

/// What a run asks of the numbers of its model, if a device can have it so.
pub(super) fn asked(settings: &RunSettings, device: &Device) -> Result<PrecisionRequest, Error> {
    let asked = PrecisionRequest { base: base(settings)?, compute: settings.file.train.compute.into() };
    match Precision::new(asked, device) {
        Ok(_) => Ok(asked),
        Err(error) => {
            let hint = "leave `train.compute` out, or name another `train.device`".into();
            let problem = Problem::Conflict { what: error.to_string(), hint };
            Err(settings.wrong("train.compute", Half::Value, problem))
        }
    }
}

/// How the base is to be kept.
fn base(settings: &RunSettings) -> Result<Base, Error> {
    if let (Some(_), Some(problem)) = (settings.file.model.precision, of_adapter(settings)) {
        return Err(settings.wrong("model.precision", Half::Key, problem));
    }
    Ok(BasePrecision::base(settings.file.model.precision))
}

/// Refuses a base in NF4 where the run trains it, or writes a model from it.
pub(super) fn refuse(settings: &RunSettings, method: &PlannedMethod) -> Result<(), Error> {
    match problem(settings, method).filter(|_| settings.file.model.precision.is_some()) {
        Some(problem) => Err(settings.wrong("model.precision", Half::Key, problem)),
        None => Ok(()),
    }
}

/// Why the base of a run cannot be kept in NF4, if it cannot.
pub(super) fn problem(settings: &RunSettings, method: &PlannedMethod) -> Option<Problem> {
    of_adapter(settings).or_else(|| of_edits(settings, method))
}

fn of_adapter(settings: &RunSettings) -> Option<Problem> {
    (settings.file.train.adapter.kind == KindChoice::Full).then(|| Problem::Conflict {
        what: "`model.precision` is for a frozen base, and `train.adapter.kind = \"full\"` trains all of it".into(),
        hint: "leave one of them out".into(),
    })
}

/// A method that edits says by its setting `apply` what becomes of it. Other weights, and edits beside an adapter, are
/// written as a whole model, with NF4's rounding in matrices that nobody edited; an edit of a method that does not say so
/// beforehand is refused when it is made.
fn of_edits(settings: &RunSettings, method: &PlannedMethod) -> Option<Problem> {
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
    Some(Problem::Conflict { what: what.into(), hint: hint.into() })
}

/// A warning where the adapter that a run continues was trained on a base that was kept in another way.
pub(super) fn other_base(settings: &RunSettings) -> Result<Option<String>, Error> {
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
