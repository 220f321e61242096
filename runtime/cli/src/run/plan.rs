//! A run's plan as a person reads it: model, method, data, training and memory.

use std::path::Path;

use serde_json::json;
use tunebox_compute::optimizer::OptimizerKind;
use tunebox_training::configuration::ENDLESS;
use tunebox_training::data::{FileReport, Report, Shape};
use tunebox_training::{Plan, PlanSummary, RunSettings, active_rings};

use crate::package::describe::{has_import, import_names};
use crate::terminal::Terminal;
use tunebox_foundation::format::{bytes, group_digits, pluralize};

/// Returns the names of the active confinement rings (the system's limits on files, system calls and memory) around the
/// process of a run. Empty for a run that writes a profile, which is not confined. `None` for a run whose method and
/// verifiers are built in.
pub(crate) fn find_rings(settings: &RunSettings, has_profile: bool) -> Option<Vec<&'static str>> {
    (!settings.is_all_built_in()).then(|| if has_profile { Vec::new() } else { active_rings(settings) })
}

/// Shows the names of the active confinement rings around the worker of a run, or that it is not confined if there are
/// none. Shows nothing for `None`.
pub(super) fn show_rings(terminal: Terminal, rings: Option<&[&str]>) {
    match rings {
        None => {}
        Some([]) => terminal.status("Worker", "not confined by the system"),
        Some(rings) => terminal.status("Worker", format!("confined: {}", rings.join("; "))),
    }
}

/// Shows a plan: its summary, warnings, estimated memory by part, the limits that differ from the defaults, and the
/// confinement rings around its worker. Emits a `plan` event with `--json`.
pub(crate) fn show_plan(terminal: Terminal, plan: &Plan) {
    let (run, summary) = (&plan.run, &plan.run.summary);
    let rings = find_rings(&run.settings, false);
    terminal.event(json!({ "event": "plan", "plan": summary, "rings": rings }));
    show_summary(terminal, summary, &run.folder, None);
    show_rings(terminal, rings.as_deref());
    for text in &run.warnings {
        terminal.warn(text);
    }
    let memory = &summary.memory;
    let runtime = if summary.device == "cpu" { "program" } else { "widened matrix" };
    let parts = [
        ("weights", memory.weights),
        ("training", memory.training),
        ("activations", memory.activations),
        ("scratch", memory.scratch),
        ("head", memory.head),
        (runtime, memory.runtime),
        ("reward models", memory.reward_models),
    ];
    let parts = parts.iter().filter(|(name, size)| *size > 0 || *name != "reward models");
    let parts = parts.map(|(name, size)| format!("{name} {}", bytes(*size))).collect::<Vec<_>>().join(", ");
    terminal.status("Memory", format!("about {}: {parts}", bytes(memory.total())));
    if run.data.shape == Shape::Prompts {
        terminal.note(completions_note(run.method.completions()));
    }
    let changed = run.method.limits.changed();
    let limits: Vec<String> =
        changed.map(|(limit, value, _)| format!("{} {}", limit.name, limit.unit.show(&value))).collect();
    if !limits.is_empty() {
        terminal.status("Limits", format!("{}; the others at their defaults", limits.join(", ")));
    }
}

/// Formats the note on how many completions of each prompt the memory estimate includes; `None` means unknown.
fn completions_note(count: Option<u64>) -> String {
    match count {
        Some(count) => format!("estimated memory includes {count} completions of each prompt, at their maximum length"),
        None => "the method's number of completions is unknown: estimated memory includes as many as may wait for \
                 their backward pass"
            .to_owned(),
    }
}

/// Shows run folder, model, method, data and training settings of a run, and how many records were skipped, dropped or
/// truncated. `resumed` is the step that the run resumes from.
pub(super) fn show_summary(terminal: Terminal, plan: &PlanSummary, folder: &Path, resumed: Option<u64>) {
    terminal.status("Run", folder.display());
    let parameters = group_digits(plan.parameters);
    terminal.status("Model", format!("{}, {}, {parameters} weights, on {}", plan.model, plan.family, plan.device));
    terminal.status("Method", method_text(plan, terminal.verbose));
    terminal.status("Data", data_text(plan));
    for line in file_notes(&plan.report) {
        terminal.note(line);
    }
    terminal.status("Training", training_text(plan));
    if let Some(ranks) = &plan.ranks {
        let learning = match ranks.gradient_bytes {
            None => "; each runs every pass for learning".to_owned(),
            Some(0) => String::new(),
            Some(gradient) => format!("; a gradient is {}", bytes(gradient)),
        };
        let threads = pluralize(ranks.threads as u64, "thread");
        let text = format!(
            "{}, here with {threads}; each has the model and computes a share of the rows{learning}",
            ranks.count
        );
        terminal.status("Ranks", text);
    }
    let report = &plan.report;
    let dropped = match report.dropped.len() {
        1 => "skipped: its answer begins past `data.max-length`",
        _ => "skipped: their answers begin past `data.max-length`",
    };
    let notes = [
        ("skipped", report.skipped.len()),
        (dropped, report.dropped.len()),
        ("truncated at the end", report.truncated),
    ];
    for (what, count) in notes.into_iter().filter(|(_, count)| *count > 0) {
        terminal.note(format!("{} {what}", pluralize(count as u64, "record")));
    }
    if let Some(text) = split_note(report) {
        terminal.note(text);
    }
    if let Some(step) = resumed {
        let changed = plan.method_changed.then_some((plan.method.as_str(), plan.method_version.as_str()));
        terminal.status("Resuming", resuming_text(step, changed));
        if let Some(before) = plan.extended_from {
            terminal.note(extension_text(plan, before));
        }
    }
}

/// Formats the method with its version, who signed it, and what it imports. The imports of a built-in method are left
/// out unless `verbose` is true.
fn method_text(plan: &PlanSummary, verbose: bool) -> String {
    let origin = match &plan.signer {
        Some(key) => format!("signed: by {key}"),
        None if plan.built_in => "built in".to_owned(),
        None => "signed: no".to_owned(),
    };
    let is_brief = plan.built_in && !verbose;
    let imports = if is_brief { String::new() } else { format!(", imports {}", import_names(&plan.imports)) };
    format!("{} {}, {origin}{imports}", plan.method, plan.method_version)
}

/// Formats the data file with its records and tokens, how many of these are targets if weights are trained on targets,
/// and how many records are held back.
fn data_text(plan: &PlanSummary) -> String {
    let (records, report) = (pluralize(plan.records as u64, "record"), &plan.report);
    let (targets, all) = (group_digits(report.targets as u64), group_digits(report.tokens as u64));
    let tokens = match report.targets {
        0 => format!("{all} tokens"),
        _ if plan.trainable == 0 => format!("{all} tokens"),
        _ if plan.answers_only => format!("trains on {targets} of {all} tokens (answers only)"),
        _ => format!("trains on {targets} of {all} tokens"),
    };
    let held_back = match report.held_back as u64 {
        0 => String::new(),
        count => format!("; {} held back for validation", pluralize(count, "record")),
    };
    format!("{}, {records}, {tokens}{held_back}", plan.data)
}

/// Says how many texts were split, and into what; `None` if none was.
pub(crate) fn split_note(report: &Report) -> Option<String> {
    let (texts, pieces) = (pluralize(report.split_texts as u64, "text"), pluralize(report.pieces as u64, "piece"));
    let length = group_digits(report.length as u64);
    (report.split_texts > 0).then(|| format!("{texts} split into {pieces} of at most {length} tokens"))
}

/// The most files of the data that are listed.
const SHOWN_FILES: usize = 8;

/// Says of each data file how many records it has, with the layout that is converted and its weight; of several files
/// also their share of the examples of an epoch. Empty for a single file whose records have the fields of a shape.
pub(crate) fn file_notes(report: &Report) -> Vec<String> {
    let files = &report.files;
    if files.len() < 2 && files.iter().all(|file| file.layout.is_none() && file.weight == 1.0) {
        return Vec::new();
    }
    let examples = |file: &FileReport| (file.weight * file.records as f64).round();
    let all: f64 = files.iter().map(examples).sum();
    let note = |file: &FileReport| {
        let layout = file.layout.as_ref().map_or_else(String::new, |layout| format!("{layout}, "));
        let weight = if file.weight == 1.0 { String::new() } else { format!(", weight {}", file.weight) };
        let share = 100.0 * examples(file) / all.max(1.0);
        let share = if files.len() < 2 { String::new() } else { format!(", {share:.1} % of the examples") };
        format!("{}: {layout}{}{weight}{share}", file.name, pluralize(file.records, "record"))
    };
    let mut notes: Vec<String> = files.iter().take(SHOWN_FILES).map(note).collect();
    if files.len() > SHOWN_FILES {
        notes.push(format!("{} more", pluralize((files.len() - SHOWN_FILES) as u64, "file")));
    }
    notes
}

/// Formats from which step a run resumes. `changed` is the name and version of its method if the method changed since.
fn resuming_text(step: u64, changed: Option<(&str, &str)>) -> String {
    match changed {
        Some((method, version)) => {
            format!("at step {step}: same model and data, by {method} {version}, which has changed since")
        }
        None => format!("at step {step}: same model, data and method"),
    }
}

/// Says that a resumed run has more steps than before, and what follows for its learning rate.
fn extension_text(plan: &PlanSummary, before: u64) -> String {
    let steps = format!("{} instead of {}", pluralize(plan.steps, "step"), group_digits(before));
    if SCHEDULES_WITHOUT_END.contains(&plan.schedule.as_str()) {
        return steps;
    }
    let (schedule, now) = (&plan.schedule, group_digits(plan.steps));
    format!(
        "{steps}: from here on the schedule `{schedule}` counts {now}, so the rate goes on where it would be in such a run. \
         The weights are not those of a run of {now} steps from the beginning"
    )
}

/// Formats what is trained (an adapter, every weight or nothing), the batch size, the number of steps, the learning
/// rate and its schedule; also the optimizer unless it is AdamW.
fn training_text(plan: &PlanSummary) -> String {
    let batch =
        if plan.accumulation > 1 { format!("{} × {}", plan.batch, plan.accumulation) } else { plan.batch.to_string() };
    let steps = if plan.steps == u64::from(ENDLESS) { "until Ctrl-C".into() } else { pluralize(plan.steps, "step") };
    let steps = format!("batch {batch}, {steps}");
    if plan.trainable == 0 {
        let reason = if has_import(&plan.imports, "weights") {
            "the method edits the weights itself"
        } else if has_import(&plan.imports, "hidden") {
            "the method reads activations, and writes what it publishes of them"
        } else {
            "the method imports neither `learn` nor `optimizer`"
        };
        return format!("no weights, {steps}: {reason}");
    }
    let share = 100.0 * plan.trainable as f64 / plan.parameters.max(1) as f64;
    let adapter = match plan.modules_to_save.as_slice() {
        _ if plan.adapter == "full" => "every weight".to_owned(),
        [] => format!("{} rank {}", plan.adapter, plan.rank),
        whole => format!("{} rank {} with whole {}", plan.adapter, plan.rank, whole.join(", ")),
    };
    let trainable = group_digits(plan.trainable);
    let optimizer = Some(plan.optimizer).filter(|kind| *kind != OptimizerKind::default());
    let optimizer = optimizer.map_or_else(String::new, |kind| format!("{kind}, "));
    let rate = format!("{optimizer}rate {:e} {}", plan.rate, schedule_text(&plan.schedule, plan.steps));
    format!("{adapter}, {trainable} trainable ({share:.2} %), {steps}, {rate}")
}

/// Schedules whose rate does not depend on the number of steps of the run.
const SCHEDULES_WITHOUT_END: [&str; 3] = ["constant", "constant-with-warmup", "inverse-sqrt"];

/// Formats the schedule of the learning rate. Says for a run without an end that a schedule which ends with the run
/// stays where it begins.
fn schedule_text(schedule: &str, steps: u64) -> String {
    if steps != u64::from(ENDLESS) || SCHEDULES_WITHOUT_END.contains(&schedule) {
        return schedule.to_owned();
    }
    format!("{schedule} to step {}, in effect constant", group_digits(steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_an_end_says_that_its_rate_does_not_fall() {
        assert_eq!(schedule_text("linear", 60), "linear");
        assert_eq!(schedule_text("linear", u64::from(ENDLESS)), "linear to step 10,000,000, in effect constant");
        assert_eq!(schedule_text("constant", u64::from(ENDLESS)), "constant");
    }

    #[test]
    fn a_resumed_run_says_whether_its_method_changed() {
        assert_eq!(resuming_text(6, None), "at step 6: same model, data and method");
        let changed = "at step 6: same model and data, by calm 0.2.0, which has changed since";
        assert_eq!(resuming_text(6, Some(("calm", "0.2.0"))), changed);
    }
}
