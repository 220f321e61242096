//! Which metrics of a run are plotted, in which order, and the numbers beside each plot.

use serde_json::{Value, json};

use super::content::Content;
use super::plot::{Line, Plot, spaced_steps};
use super::series::Point;
use super::text::{printable_lines, short};
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

/// Plots the metrics of a run. Returns the main plot, of the goal with its validation, and the others: one for each
/// metric in the order of their first row, then gradient norm, learning rate, speed and memory. Leaves out metrics that
/// are always 0, and the learning rate if nothing is trained. A main metric with fewer than two numbers is plotted
/// among the others.
pub(super) fn plots_of(content: &Content, goal: Option<Goal>) -> (Option<Plot>, Vec<Plot>) {
    let mut taken: Vec<&str> = LAST.iter().map(|(name, _)| *name).collect();
    let main = goal.filter(|goal| content.series(goal.name).is_some_and(|series| series.count() > 1)).map(|goal| {
        taken.extend([goal.name, goal.validation]);
        let lines =
            [goal.name, goal.validation].into_iter().filter_map(|name| line(content, name, &metric_label(name)));
        let lines = lines.enumerate().map(|(color, line)| Line { color, ..line }).collect();
        Plot { title: metric_label(goal.name), lines, is_main: true }
    });
    let names = content.series.iter().map(|(name, _)| name.as_str()).filter(|name| !taken.contains(name));
    let is_training = content.figures.as_ref().is_none_or(|figures| figures.trainable > 0);
    let last = LAST.iter().map(|(name, _)| *name).filter(|name| is_training || *name != "rate");
    let names = names.chain(last);
    let mut plots: Vec<Plot> =
        names.filter_map(|name| single_line_plot(line(content, name, &metric_label(name))?)).collect();
    plots.extend(content.peak.as_ref().and_then(|peak| {
        let points = peak.points().into_iter().chain([(content.step as f64, peak.last.1)]);
        single_line_plot(memory_line(points.collect()))
    }));
    (main, plots)
}

/// A line of the metric `name`; `None` if no row has it.
fn line(content: &Content, name: &str, label: &str) -> Option<Line> {
    Some(Line { label: label.to_owned(), color: 0, points: content.series(name)?.points() })
}

/// A plot of one line with its label as title; `None` if all its numbers are 0.
fn single_line_plot(line: Line) -> Option<Plot> {
    let is_zero = line.points.iter().all(|(_, value)| *value == 0.0);
    (!is_zero).then(|| Plot { title: line.label.clone(), lines: vec![line], is_main: false })
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
pub(super) fn metric_label(name: &str) -> String {
    let title = LAST.iter().find(|(known, _)| *known == name).map(|(_, title)| (*title).to_owned());
    title.unwrap_or_else(|| printable_lines(&name.replace('-', " "), 80))
}

/// Draws a plot for the templates, with its title, legend and table of numbers; the main one in two sizes, for wide and
/// for narrow screens.
pub(super) fn figure(plot: &Plot) -> Value {
    let svgs = if plot.is_main {
        vec![plot.svg(WIDE, "wide"), plot.svg(NARROW, "narrow")]
    } else {
        vec![plot.svg(SMALL, "small")]
    };
    let last = |line: &Line| line.points.last().map_or_else(String::new, |(_, value)| short(*value));
    let legend = plot.lines.iter().map(|line| json!({ "color": line.color, "label": line.label, "last": last(line) }));
    json!({
        "title": plot.title,
        "is_log": plot.is_log(),
        "legend": legend.collect::<Vec<_>>(),
        "svgs": svgs,
        "table": table(&plot.lines),
    })
}

/// Rows of numbers: at most 13 evenly spaced steps of the longest line, and the value of each line nearest to that
/// step, or none if it has no number between the neighboring rows.
fn table(lines: &[Line]) -> Vec<Vec<String>> {
    let steps = spaced_steps(lines, MAX_ROWS - 1);
    let width = steps.windows(2).map(|pair| pair[1] - pair[0]).fold(1.0, f64::max) / 2.0;
    let cell = |line: &Line, step: f64| line.value_near(step, width).map_or_else(String::new, short);
    let row =
        |step: &f64| std::iter::once(short(step.round())).chain(lines.iter().map(|line| cell(line, *step))).collect();
    steps.iter().map(row).collect()
}
