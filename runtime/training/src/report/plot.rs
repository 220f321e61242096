//! Line plots as SVG without script: the numbers under the pointer are shown by CSS. Colors come from the classes of
//! `style.css`.

use std::fmt::Write;

use tunebox_foundation::format::group_digits;

use super::series::{Point, smooth};
use super::text::{escape_markup, short};

/// The margins around the plotted area in CSS pixels: left for the numbers, above for the values under the pointer,
/// below for the steps.
const LEFT: f64 = 50.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 24.0;

/// The most areas of a plot that react to the pointer, each of which shows the values at one step.
const MAX_COLUMNS: usize = 40;

/// From this quotient of the largest and the smallest number, a plot that may be logarithmic is.
const LOG_RATIO: f64 = 30.0;

/// A line of a plot.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) label: String,
    /// The number of its color in the style.
    pub(super) color: usize,
    pub(super) points: Vec<Point>,
}

impl Line {
    /// The value of the point nearest to a step; `None` if that point is more than `distance` away.
    pub(super) fn value_near(&self, step: f64, distance: f64) -> Option<f64> {
        let from_step = |point: &&Point| (point.0 - step).abs();
        let nearest = self.points.iter().min_by(|one, other| from_step(one).total_cmp(&from_step(other)));
        nearest.filter(|point| from_step(point) <= distance).map(|(_, value)| *value)
    }
}

/// A plot of lines over the steps.
#[derive(Debug, Clone)]
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) lines: Vec<Line>,
    /// Whether it is the plot of what the run is judged by.
    pub(super) is_main: bool,
}

/// The ranges of a plot's axes, and where its numbers are drawn.
struct Axes {
    steps: (f64, f64),
    /// In the logarithm to base 10 if `is_log`.
    values: (f64, f64),
    is_log: bool,
    size: (f64, f64),
}

impl Plot {
    /// Whether the vertical axis is logarithmic: the plot is of a loss, a gradient norm or a perplexity, all numbers
    /// are positive, and the largest is at least [`LOG_RATIO`] times the smallest.
    pub(super) fn is_log(&self) -> bool {
        let title = self.title.as_str();
        let may_be = title.contains("loss") || title.starts_with("gradient norm") || title.contains("perplexity");
        let (low, high) = range(self.lines.iter().flat_map(|line| line.points.iter().map(|(_, value)| *value)));
        may_be && low > 0.0 && high / low >= LOG_RATIO
    }

    /// Draws the plot as an SVG element of this class, width and height in CSS pixels: the grid, the lines, and the
    /// areas that show values under the pointer. Smooths lines of many points, except learning rates and memory. Text
    /// is escaped.
    pub(super) fn svg(&self, size: (f64, f64), class: &str) -> String {
        let axes = self.axes(size);
        let (width, height) = size;
        // These are not noisy, and their corners mean something.
        let may_smooth = !self.title.starts_with("learning rate") && !self.title.starts_with("peak memory");
        let names: Vec<&str> = self.lines.iter().map(|line| line.label.as_str()).collect();
        let label = escape_markup(&format!("{} over the steps", names.join(", ")));
        let mut svg =
            format!("<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">");
        axes.draw_grid(&mut svg);
        for line in &self.lines {
            draw_line(&axes, line, may_smooth, &mut svg);
        }
        self.draw_columns(&axes, &mut svg);
        svg + "</svg>"
    }

    /// Finds the ranges of the axes, with 6 % of room above and below the lines. An axis that is not logarithmic begins
    /// at 0 if the smallest number is not negative and less than about a third of the largest.
    fn axes(&self, size: (f64, f64)) -> Axes {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let steps = range(points().map(|(step, _)| *step));
        let steps = if steps.0 < steps.1 { steps } else { (steps.0 - 1.0, steps.1 + 1.0) };
        let (low, high) = range(points().map(|(_, value)| *value));
        let is_log = self.is_log();
        let (low, high) = if is_log { (low.log10(), high.log10()) } else { (low, high) };
        let spread = if high > low { high - low } else { (low.abs() * 0.2).max(1e-6) };
        let (mut bottom, top) = (low - spread * 0.06, high + spread * 0.06);
        if !is_log && low >= 0.0 && low < 0.35 * high {
            bottom = 0.0;
        }
        Axes { steps, values: (bottom, top), is_log, size }
    }

    /// Draws areas next to each other, each with the values of all lines at one step; the style shows an area's values
    /// only under the pointer. The steps are those of the line with the most points, at most about [`MAX_COLUMNS`] of
    /// them, the last included.
    fn draw_columns(&self, axes: &Axes, svg: &mut String) {
        let steps = spaced_steps(&self.lines, MAX_COLUMNS);
        let (width, height) = axes.size;
        for (at, step) in steps.iter().enumerate() {
            let edge = |other: Option<&f64>, end: f64| other.map_or(end, |other| axes.x(f64::midpoint(*step, *other)));
            let left = edge(at.checked_sub(1).and_then(|before| steps.get(before)), LEFT);
            let right = edge(steps.get(at + 1), width - RIGHT);
            let (x, text) = (axes.x(*step), self.caption_at(*step));
            let (top, below) = (TOP, height - BOTTOM);
            let _ = write!(
                svg,
                "<g class=\"at\"><rect x=\"{left:.1}\" y=\"0\" width=\"{:.1}\" height=\"{height}\"/>\
                 <path d=\"M{x:.1} {top}V{below}\"/><text x=\"{:.1}\" y=\"13\">{text}</text></g>",
                (right - left).max(0.1),
                width - RIGHT,
            );
        }
    }

    /// The caption of a step: `step N`, then the label and the value of each line at its point nearest to the step,
    /// escaped. Leaves out lines whose nearest point is further than a twentieth of the plot's steps, plus ½.
    fn caption_at(&self, step: f64) -> String {
        let (first, last) = range(self.lines.iter().flat_map(|line| line.points.iter().map(|(step, _)| *step)));
        let distance = (last - first) / 20.0 + 0.5;
        let values = self.lines.iter().filter_map(|line| Some((line, line.value_near(step, distance)?)));
        let named = values.map(|(line, value)| format!(" · {} {}", escape_markup(&line.label), short(value)));
        format!("step {}{}", group_digits(step.round().max(0.0) as u64), named.collect::<String>())
    }
}

impl Axes {
    /// The horizontal position of a step in CSS pixels, from the left edge of the plot.
    fn x(&self, step: f64) -> f64 {
        let (low, high) = self.steps;
        LEFT + (step - low) / (high - low) * (self.size.0 - LEFT - RIGHT)
    }

    /// The vertical position of a value in CSS pixels, from the top edge of the plot.
    fn y(&self, value: f64) -> f64 {
        let value = if self.is_log { value.log10() } else { value };
        let (low, high) = self.values;
        TOP + (high - value) / (high - low) * (self.size.1 - TOP - BOTTOM)
    }

    /// Draws the lines of the grid with their numbers, and the steps below.
    fn draw_grid(&self, svg: &mut String) {
        let (width, height) = self.size;
        for (value, label) in self.value_ticks() {
            let y = self.y(value);
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{:.1}\"/>\
                 <text class=\"y\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
                width - RIGHT,
                LEFT - 6.0,
                y + 3.5,
            );
        }
        let room = ((width - LEFT - RIGHT) / 70.0).clamp(2.0, 8.0);
        for step in ticks(self.steps, room, 1.0) {
            let (x, label) = (self.x(step), group_digits(step.max(0.0) as u64));
            let _ = write!(svg, "<text class=\"x\" x=\"{x:.1}\" y=\"{:.1}\">{label}</text>", height - 7.0);
        }
    }

    /// Returns the values of the grid lines with their labels. On a logarithmic axis these are powers of 10, together
    /// with 2 and 5 times each of them if the axis spans few powers.
    fn value_ticks(&self) -> Vec<(f64, String)> {
        if !self.is_log {
            let found = ticks(self.values, 5.0, 0.0);
            let step = if let [one, other, ..] = found[..] { other - one } else { 1.0 };
            return found.into_iter().map(|value| (value, tick_label(value, step))).collect();
        }
        let (low, high) = self.values;
        let factors: &[f64] = if high - low > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let powers = low.floor() as i32..=high.floor() as i32;
        let every = (powers.clone().count() / 6).max(1);
        let all = powers.step_by(every).flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)));
        let inside = all.filter(|value| (low..=high).contains(&value.log10()));
        inside.map(|value| (value, short(value))).collect()
    }
}

/// Draws a line: if it has many points and `may_smooth` is true, smoothed, and as it is in a paler color below. Draws
/// few points as dots too.
fn draw_line(axes: &Axes, line: &Line, may_smooth: bool, svg: &mut String) {
    let path = |points: &[Point]| -> String {
        let command = |at: usize| if at == 0 { 'M' } else { 'L' };
        let place =
            |(at, (step, value)): (usize, &Point)| format!("{}{:.1} {:.1}", command(at), axes.x(*step), axes.y(*value));
        points.iter().enumerate().map(place).collect()
    };
    let (color, smoothed) = (line.color, smooth(&line.points).filter(|_| may_smooth));
    if let Some(smoothed) = &smoothed {
        let _ = write!(svg, "<path class=\"line raw c{color}\" d=\"{}\"/>", path(&line.points));
        let _ = write!(svg, "<path class=\"line c{color}\" d=\"{}\"/>", path(smoothed));
        return;
    }
    let _ = write!(svg, "<path class=\"line c{color}\" d=\"{}\"/>", path(&line.points));
    if line.points.len() <= 12 {
        for (step, value) in &line.points {
            let (x, y) = (axes.x(*step), axes.y(*value));
            let _ = write!(svg, "<circle class=\"c{color}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
        }
    }
}

/// Evenly spaced steps of the line with the most points, about `most` of them, the last included.
pub(super) fn spaced_steps(lines: &[Line], most: usize) -> Vec<f64> {
    let Some(longest) = lines.iter().max_by_key(|line| line.points.len()) else { return Vec::new() };
    let every = longest.points.len().div_ceil(most).max(1);
    let last = longest.points.len().saturating_sub(1);
    let chosen = longest.points.iter().enumerate().filter(|(at, _)| at % every == 0 || *at == last);
    chosen.map(|(_, (step, _))| *step).collect()
}

/// The smallest and the largest of some numbers; (0, 1) without any.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low <= high { (low, high) } else { (0.0, 1.0) }
}

/// Round numbers in a range, about `count` of them, at distances of 1, 2 or 5 times a power of 10, at least `least`.
fn ticks((low, high): (f64, f64), count: f64, least: f64) -> Vec<f64> {
    let rough = ((high - low) / count).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(rough).max(least);
    let first = (low / step).ceil();
    let all = (0..=20).map(|number| (first + f64::from(number)) * step);
    all.take_while(|value| *value <= high + step * 1e-9).collect()
}

/// Formats the value of a tick with as many decimals as the distance `step` between ticks needs.
fn tick_label(value: f64, step: f64) -> String {
    let decimals = (-(step.log10() + 1e-9).floor()).max(0.0) as usize;
    match value.abs() {
        0.0 => "0".into(),
        size if size >= 1e6 || decimals > 4 => format!("{value:.1e}"),
        size if size >= 1e4 && value > 0.0 => group_digits(value.round() as u64),
        _ => format!("{value:.decimals$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(values: &[f64], may_be_log: bool) -> Plot {
        let points = values.iter().enumerate().map(|(at, value)| (at as f64 + 1.0, *value)).collect();
        let line = Line { label: "loss".into(), color: 0, points };
        let title = if may_be_log { "loss" } else { "reward" };
        Plot { title: title.into(), lines: vec![line], is_main: false }
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks((0.0, 1.0), 4.0, 0.0), [0.0, 0.5, 1.0]);
        assert_eq!(ticks((1.0, 60.0), 5.0, 1.0), [20.0, 40.0, 60.0]);
        assert_eq!(ticks((1.0, 3.0), 5.0, 1.0), [1.0, 2.0, 3.0]);
        let labels = [(0.25, 0.05), (0.0, 1.0), (20_000.0, 5000.0), (2e-5, 1e-5)];
        assert_eq!(labels.map(|(value, step)| tick_label(value, step)), ["0.25", "0", "20,000", "2.0e-5"]);
    }

    #[test]
    fn numbers_far_apart_are_on_a_logarithmic_axis() {
        assert!(plot(&[8.0, 0.1], true).is_log() && !plot(&[8.0, 0.1], false).is_log());
        assert!(!plot(&[8.0, 0.0], true).is_log() && !plot(&[2.0, 1.0], true).is_log());
    }

    #[test]
    fn every_number_drawn_is_finite() {
        for values in [&[1.0][..], &[0.0, 0.0], &[-1e100, 1e100], &[1e-300, 1e100], &[], &[-1.0, -1.0, 5e-324]] {
            for may_be_log in [true, false] {
                let svg = plot(values, may_be_log).svg((360.0, 200.0), "plot");
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{values:?}: {svg}");
            }
        }
    }
}
