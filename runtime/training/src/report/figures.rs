//! Which metrics of a run are plotted, in which order, and the numbers beside each plot.

use serde::Serialize;

use super::content::Content;
use super::plot::{Line, Plot};
use super::series::Point;
use super::text::{short, shown};
use super::verdict::Goal;

/// The sizes of a plot among others, and of the main plot on a wide and on a narrow screen.
const SMALL: (f64, f64) = (380.0, 190.0);
const WIDE: (f64, f64) = (1120.0, 300.0);
const NARROW: (f64, f64) = (380.0, 240.0);

/// The most rows of numbers beside a plot.
const MAX_ROWS: usize = 13;

/// Metrics at the end of the page, with their titles.
const LAST: [(&str, &str); 3] =
    [("gradient-norm", "gradient norm"), ("rate", "learning rate"), ("tokens-per-second", "tokens per second")];

/// Lines that belong into one plot.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) title: String,
    pub(super) lines: Vec<Line>,
    pub(super) is_main: bool,
}

/// A plot with its title, legend and numbers, for the templates.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    title: String,
    is_log: bool,
    legend: Vec<Legend>,
    /// The drawings: of the main plot one for wide and one for narrow screens.
    svgs: Vec<String>,
    /// Rows of numbers: the step, then the value of each line.
    table: Vec<Vec<String>>,
}

/// An entry of a plot's legend: a line with its last value.
#[derive(Debug, Serialize)]
struct Legend {
    color: usize,
    label: String,
    last: String,
}

/// Groups the metrics of a run. Returns the main group, of the goal with its validation, and the others: one for each
/// metric in the order of their first row, then gradient norm, learning rate, speed and memory. Leaves out metrics that
/// are always 0, and the learning rate if nothing is trained. A main metric with fewer than two numbers is plotted
/// among the others.
pub(super) fn figures_of(content: &Content, goal: Option<Goal>) -> (Option<Group>, Vec<Group>) {
    let mut taken: Vec<&str> = LAST.iter().map(|(name, _)| *name).collect();
    let main = goal.filter(|goal| content.series(goal.name).is_some_and(|series| series.count() > 1)).map(|goal| {
        taken.extend([goal.name, goal.validation]);
        let lines = [goal.name, goal.validation].into_iter().filter_map(|name| line(content, name, &readable(name)));
        let lines = lines.enumerate().map(|(color, line)| Line { color, ..line }).collect();
        Group { title: readable(goal.name), lines, is_main: true }
    });
    let names = content.series.iter().map(|(name, _)| name.as_str()).filter(|name| !taken.contains(name));
    let is_training = content.figures.as_ref().is_none_or(|figures| figures.trainable > 0);
    let last = LAST.iter().map(|(name, _)| *name).filter(|name| is_training || *name != "rate");
    let names = names.chain(last);
    let mut groups: Vec<Group> =
        names.filter_map(|name| single_line_group(line(content, name, &readable(name))?)).collect();
    groups.extend(content.peak.as_ref().and_then(|peak| {
        let points = peak.points().into_iter().chain([(content.step as f64, peak.last.1)]);
        single_line_group(memory_line(points.collect()))
    }));
    (main, groups)
}

/// A line of the metric `name`; `None` if no row has it.
fn line(content: &Content, name: &str, label: &str) -> Option<Line> {
    Some(Line { label: label.to_owned(), color: 0, points: content.series(name)?.points() })
}

/// A group of one line with its label as title; `None` if all its numbers are 0.
fn single_line_group(line: Line) -> Option<Group> {
    let is_zero = line.points.iter().all(|(_, value)| *value == 0.0);
    (!is_zero).then(|| Group { title: line.label.clone(), lines: vec![line], is_main: false })
}

/// The line of the peak memory, given in bytes: in GiB if it reaches 1 GiB, else in MiB.
fn memory_line(points: Vec<Point>) -> Line {
    let highest = points.iter().fold(0.0, |highest: f64, (_, bytes)| highest.max(*bytes));
    let (unit, size) = if highest >= (1_u64 << 30) as f64 { ("GiB", 30) } else { ("MiB", 20) };
    let points = points.into_iter().map(|(step, bytes)| (step, bytes / (1_u64 << size) as f64)).collect();
    Line { label: format!("peak memory, {unit}"), color: 0, points }
}

/// The name of a metric as people write it: a title of [`LAST`], or the name with spaces for hyphens, cut after 80
/// bytes and safe to show.
pub(super) fn readable(name: &str) -> String {
    let title = LAST.iter().find(|(known, _)| *known == name).map(|(_, title)| (*title).to_owned());
    title.unwrap_or_else(|| shown(&name.replace('-', " "), 80))
}

/// Draws a group of lines as a plot with legend and table; the main one in two sizes. Only losses, gradient norms and
/// perplexities may have a logarithmic axis. Learning rates and memory are not smoothed.
pub(super) fn figure(group: &Group) -> Figure {
    let may_be_log =
        group.title.contains("loss") || group.title.starts_with("gradient norm") || group.title.contains("perplexity");
    // These are not noisy, and their corners mean something.
    let may_smooth = !group.title.starts_with("learning rate") && !group.title.starts_with("peak memory");
    let plot = |size, class| Plot { lines: group.lines.clone(), may_be_log, may_smooth, size, class };
    let plots =
        if group.is_main { vec![plot(WIDE, "wide"), plot(NARROW, "narrow")] } else { vec![plot(SMALL, "small")] };
    let legend = group.lines.iter().map(|line| Legend {
        color: line.color,
        label: line.label.clone(),
        last: line.points.last().map_or_else(String::new, |(_, value)| short(*value)),
    });
    Figure {
        title: group.title.clone(),
        is_log: plots.first().is_some_and(Plot::is_log),
        legend: legend.collect(),
        svgs: plots.iter().map(Plot::svg).collect(),
        table: table(&group.lines),
    }
}

/// Rows of at most 13 evenly spaced steps of the longest line, and the value of each line nearest to that step, or none
/// if it has no number between the neighboring rows.
fn table(lines: &[Line]) -> Vec<Vec<String>> {
    let Some(longest) = lines.iter().max_by_key(|line| line.points.len()) else { return Vec::new() };
    let every = longest.points.len().div_ceil(MAX_ROWS - 1).max(1);
    let last = longest.points.len().saturating_sub(1);
    let chosen = longest.points.iter().enumerate().filter(|(at, _)| at % every == 0 || *at == last);
    let steps: Vec<f64> = chosen.map(|(_, (step, _))| *step).collect();
    let width = steps.windows(2).map(|pair| pair[1] - pair[0]).fold(1.0, f64::max) / 2.0;
    let cell = |line: &Line, step: f64| {
        let distance = |point: &&Point| (point.0 - step).abs();
        let nearest = line.points.iter().min_by(|one, other| distance(one).total_cmp(&distance(other)));
        nearest.filter(|point| distance(point) <= width).map_or_else(String::new, |(_, value)| short(*value))
    };
    let row =
        |step: &f64| std::iter::once(short(step.round())).chain(lines.iter().map(|line| cell(line, *step))).collect();
    steps.iter().map(row).collect()
}
