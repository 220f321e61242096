//! The picture of growth: time and memory of a step over the length of a row, both axes from nought.

use super::drawing::Drawing;
use super::results::{OURS, Row};

const SIZE: (f64, f64) = (860.0, 270.0);
const PANEL: (f64, f64) = (330.0, 180.0);
const TOP: f64 = 40.0;
const LEFTS: [f64; 2] = [40.0, 470.0];
/// What stands where a side goes no further.
pub(crate) const STOPPED: &str = "longer does not fit";
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// One side's figures over the lengths at which it has them.
struct Curve<'a> {
    side: &'a str,
    points: Vec<(f64, f64)>,
}

/// The picture; `None` where no lengths were measured.
pub(crate) fn picture(rows: &[Row<'_>]) -> Option<String> {
    let lengths: Vec<(f64, &Row<'_>)> =
        rows.iter().filter_map(|row| Some((row.word("setting").strip_prefix("1 × ")?.parse().ok()?, row))).collect();
    let longest = lengths.iter().map(|(length, _)| *length).reduce(f64::max)?;
    let mut drawing = Drawing::new(SIZE.0, SIZE.1);
    let figures = [("step_seconds", 1.0, "seconds a step"), ("peak_bytes", GIB, "GiB at most")];
    for (left, (key, unit, title)) in LEFTS.into_iter().zip(figures) {
        let sides = lengths[0].1.sides();
        let curve = |side| {
            let point = |(length, row): &(f64, &Row<'_>)| Some((*length, row.middle(side, key)? / unit));
            Curve { side, points: lengths.iter().filter_map(point).collect() }
        };
        let curves: Vec<Curve<'_>> = sides.into_iter().map(curve).filter(|curve| !curve.points.is_empty()).collect();
        panel(&mut drawing, left, title, (longest, &curves));
    }
    Some(drawing.finish("Time and memory of a training step over the length of a row"))
}

fn panel(drawing: &mut Drawing, left: f64, title: &str, (longest, curves): (f64, &[Curve<'_>])) {
    let highest = curves.iter().flat_map(|curve| &curve.points).map(|(_, y)| *y).fold(0.0, f64::max);
    let step = round_step(highest / 4.0);
    let top_value = step * (highest / step).ceil();
    let bottom = TOP + PANEL.1;
    let place = |(x, y): (f64, f64)| (left + PANEL.0 * x / longest, bottom - PANEL.1 * y / top_value);
    drawing.text(left, 18.0, "head", title);
    let marks = (top_value / step).round() as usize;
    for mark in 0..=marks {
        let value = mark as f64 * step;
        let (_, y) = place((0.0, value));
        drawing.line((left, y), (left + PANEL.0, y), "axis");
        drawing.text(left - 6.0, y + 4.0, "quiet end", &format!("{value}"));
    }
    for length in [0.25, 0.5, 0.75, 1.0].map(|part| part * longest) {
        drawing.text(place((length, 0.0)).0, bottom + 16.0, "quiet middle", &format!("{length:.0}"));
    }
    drawing.text(left + PANEL.0 / 2.0, bottom + 34.0, "quiet middle", "tokens of a row");
    for curve in curves {
        let points: Vec<(f64, f64)> = curve.points.iter().map(|point| place(*point)).collect();
        drawing.curve(&points, if curve.side == OURS { "ours" } else { "theirs" });
        end(drawing, curve, longest, points[points.len() - 1]);
    }
}

/// The side's name at its last point; where it could not go on, that too.
fn end(drawing: &mut Drawing, curve: &Curve<'_>, longest: f64, last: (f64, f64)) {
    let stops = curve.points.last().is_some_and(|(length, _)| *length < longest);
    let (x, y) = last;
    if stops {
        drawing.text(x + 14.0, y - 23.0, "end", curve.side);
        drawing.text(x + 14.0, y - 9.0, "quiet end", STOPPED);
    } else {
        drawing.text(x, y - 9.0, "end", curve.side);
    }
}

/// 1, 2 or 5 times a power of ten, at least as large as asked for.
pub(crate) fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|step| *step >= least * 0.999).unwrap_or(power)
}
