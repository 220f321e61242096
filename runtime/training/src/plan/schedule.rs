//! The learning-rate schedule of a run, from `train.schedule` and `train.min-rate`.

use tunebox_compute::schedule::Schedule;
use tunebox_foundation::explain::Explanation;

use crate::configuration::{RunSettings, Underline, meant_choice_hint};
use crate::error::Error;

/// Reads the schedule that `train.schedule` names. The least rate is the share of the peak that the name gives;
/// [`schedule_with_peak`] replaces it by `train.min-rate`.
///
/// # Errors
/// An unknown schedule, located at `train.schedule`; `train.min-rate` beside a schedule without a least rate, or beside
/// a share.
pub(super) fn parse_schedule(settings: &RunSettings) -> Result<Schedule, Error> {
    let text = &settings.file.train.schedule;
    let schedule: Schedule = text.parse().map_err(|error: tunebox_compute::Error| {
        let name = text.split(':').next().unwrap_or_default();
        let hint = meant_choice_hint("train.schedule", name, Schedule::names());
        let problem = Explanation { hint, ..Explanation::new("config", error.to_string()) };
        settings.error("train.schedule", Underline::Value, problem)
    })?;
    if settings.file.train.min_rate.is_none() || schedule.has_floor() && !text.contains(':') {
        return Ok(schedule);
    }
    let (what, hint) = if schedule.has_floor() {
        (
            format!(
                "`train.schedule` `{text}` gives the lowest rate as a share of the peak, and `train.min-rate` gives it"
            ),
            "leave one of them out",
        )
    } else {
        (
            format!("the schedule `{text}` has no lowest rate that `train.min-rate` could set"),
            "set `train.schedule` to `cosine-with-min-rate`, `cosine-warmup-with-min-rate` or `linear-with-min-rate`",
        )
    };
    Err(settings.conflict("train.min-rate", Underline::Key, &what, hint))
}

/// Reads the schedule of a run with the peak rate `peak`; `train.min-rate` becomes a share of it.
///
/// # Errors
/// Those of [`parse_schedule`], and a `train.min-rate` above the peak.
pub(super) fn schedule_with_peak(settings: &RunSettings, peak: f64) -> Result<Schedule, Error> {
    let schedule = parse_schedule(settings)?;
    let Some(least) = settings.file.train.min_rate else { return Ok(schedule) };
    schedule.with_floor(least / peak).map_err(|_| {
        let what = format!("`train.min-rate` is {least}, above the peak rate {peak}");
        settings.conflict("train.min-rate", Underline::Value, &what, "set it below `train.rate`")
    })
}

#[cfg(test)]
mod tests {
    use tunebox_foundation::explain::Explain;

    use super::*;

    fn settings(overrides: &[&str]) -> RunSettings {
        let named = ["model.path=m", "data.path=d", "method.use=lora"];
        RunSettings::from_overrides(&[&named[..], overrides].concat()).unwrap()
    }

    /// The rates that `get_scheduler` of transformers 5 gives for `min_lr`, 10 steps with 2 of warm-up and a peak of
    /// 2e-4.
    #[test]
    fn a_lowest_rate_gives_the_rates_of_transformers() {
        let line =
            [1.935297603e-4, 1.751040764e-4, 1.475280918e-4, 1.15e-4, 8.247190825e-5, 5.48959236e-5, 3.647023974e-5];
        for (name, before) in [("cosine", &[0.0, 1e-4, 2e-4][..]), ("cosine-warmup", &[1e-4, 2e-4])] {
            let settings = settings(&[&format!("train.schedule={name}-with-min-rate"), "train.min-rate=3e-5"]);
            let schedule = schedule_with_peak(&settings, 2e-4).unwrap();
            for (step, wanted) in before.iter().chain(&line).chain(&[3e-5]).enumerate() {
                let found = 2e-4 * schedule.factor(step as u64, 2, 10);
                assert!((found - wanted).abs() < 1e-12, "{name} at step {step}: {found:e} for {wanted:e}");
            }
        }
    }

    #[test]
    fn a_lowest_rate_that_does_not_go_with_the_schedule_or_the_peak_is_refused() {
        for (name, wanted) in [
            ("cosine", "the schedule `cosine` has no lowest rate that `train.min-rate` could set"),
            (
                "cosine-with-min-rate:0.1",
                "`train.schedule` `cosine-with-min-rate:0.1` gives the lowest rate as a share of the peak, and \
                 `train.min-rate` gives it",
            ),
            ("linear-with-min-rate", "`train.min-rate` is 0.001, above the peak rate 0.0002"),
        ] {
            let settings = settings(&[&format!("train.schedule={name}"), "train.min-rate=1e-3"]);
            let error = schedule_with_peak(&settings, 2e-4).unwrap_err();
            assert_eq!(error.to_string(), wanted);
            assert!(error.hint().is_some());
        }
    }
}
