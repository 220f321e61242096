//! The picture of speed and memory: a bar for each comparison, with a mark where both sides are alike.

use super::drawing::Drawing;
use super::results::Comparison;
use super::table::{figure, gibibytes};

const WIDTH: f64 = 860.0;
const TOP: f64 = 40.0;
const ROW: f64 = 42.0;
const BAR: f64 = 16.0;
/// Where the bars of speed begin, and how long the longest is.
const SPEED: (f64, f64) = (300.0, 250.0);
/// Where the bars of memory begin, and how long the peer's is.
const MEMORY: (f64, f64) = (625.0, 120.0);

/// The picture of all comparisons.
pub(crate) fn picture(compared: &[Comparison]) -> String {
    let height = TOP + ROW * compared.len() as f64 + 22.0;
    let mut drawing = Drawing::new(WIDTH, height);
    let most = compared.iter().map(Comparison::speed).fold(1.0, f64::max);
    let pixels = SPEED.1 / most;
    drawing.text(SPEED.0, 18.0, "head", "times as fast");
    drawing.text(MEMORY.0, 18.0, "head", "share of the peer's memory");
    for (number, one) in compared.iter().enumerate() {
        let top = TOP + ROW * number as f64;
        label(&mut drawing, top, one);
        speed(&mut drawing, top, pixels, one);
        memory(&mut drawing, top, one);
    }
    let bottom = TOP + ROW * compared.len() as f64;
    drawing.text(SPEED.0 + pixels, bottom + 9.0, "quiet middle", "as fast as the peer");
    drawing.finish("Speed and memory of tunebox beside its fastest peers")
}

fn label(drawing: &mut Drawing, top: f64, one: &Comparison) {
    drawing.text(0.0, top + 10.0, "", &format!("{}, {}", one.work, one.setting));
    drawing.text(0.0, top + 25.0, "quiet", &format!("{}, beside {}", one.model, one.peer));
}

fn speed(drawing: &mut Drawing, top: f64, pixels: f64, one: &Comparison) {
    let long = pixels * one.speed();
    drawing.bar(SPEED.0, top, (long, BAR), "ours");
    let even = SPEED.0 + pixels;
    drawing.line((even, top - 4.0), (even, top + BAR + 4.0), "rule");
    drawing.text(SPEED.0 + long.max(pixels) + 6.0, top + 12.5, "head", &format!("{:.2} ×", one.speed()));
    let rates = format!("{} against {} {}", figure(one.ours.rate), figure(one.theirs.rate), one.unit);
    drawing.text(SPEED.0, top + BAR + 13.0, "quiet", &rates);
}

/// The peer's memory is the track; where ours is more, the bar ends at the track's end and the figure tells.
fn memory(drawing: &mut Drawing, top: f64, one: &Comparison) {
    drawing.bar(MEMORY.0, top, (MEMORY.1, BAR), "track");
    drawing.bar(MEMORY.0, top, (MEMORY.1 * one.memory().min(1.0), BAR), "ours");
    drawing.text(MEMORY.0 + MEMORY.1 + 6.0, top + 12.5, "head", &format!("{:.2} ×", one.memory()));
    let sizes = format!("{} of {} GiB", gibibytes(one.ours.peak_bytes), gibibytes(one.theirs.peak_bytes));
    drawing.text(MEMORY.0, top + BAR + 13.0, "quiet", &sizes);
}
