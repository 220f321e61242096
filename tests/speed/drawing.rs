//! What both pictures share: one style for light and dark grounds, and words and lines at places.

use std::fmt::Write as _;

/// A picture that is drawn piece by piece.
pub(crate) struct Drawing {
    width: f64,
    height: f64,
    body: String,
}

/// Colors follow the reader's own preference; the ground stays open.
const STYLE: &str = "\
<style>
text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #1f2328 }
.head { font-weight: 600 }
.quiet { font-size: 11px; fill: #59636e }
.end { text-anchor: end }
.middle { text-anchor: middle }
.ours { fill: #0d7d74 }
.track { fill: #d9dee4 }
.rule { stroke: #818b96; stroke-width: 1; stroke-dasharray: 3 3 }
.axis { stroke: #c4cbd3; stroke-width: 1 }
.curve { fill: none; stroke-width: 2.5; stroke-linejoin: round }
.curve.ours { fill: none; stroke: #0d7d74 }
.curve.theirs { fill: none; stroke: #818b96 }
.theirs { fill: #818b96 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.quiet { fill: #9198a1 }
.ours { fill: #35c2b4 }
.track { fill: #343b44 }
.rule { stroke: #7d8590 }
.axis { stroke: #3d444d }
.curve.ours { stroke: #35c2b4 }
.curve.theirs { stroke: #7d8590 }
.theirs { fill: #7d8590 }
}
</style>
";

impl Drawing {
    /// Nothing yet, so wide and high, in pixels.
    pub(crate) fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// Words at the left end, the middle or the right end of a baseline, by class.
    pub(crate) fn text(&mut self, x: f64, y: f64, class: &str, words: &str) {
        let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(self.body, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{words}</text>");
    }

    /// A bar from its upper left corner.
    pub(crate) fn bar(&mut self, x: f64, y: f64, size: (f64, f64), class: &str) {
        let (width, height) = size;
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\" class=\"{class}\"/>"
        );
    }

    /// A straight line.
    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" class=\"{class}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A line through points, with a dot on each.
    pub(crate) fn curve(&mut self, points: &[(f64, f64)], side: &str) {
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.body, "<polyline points=\"{}\" class=\"curve {side}\"/>", path.join(" "));
        for (x, y) in points {
            let _ = writeln!(self.body, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" class=\"{side}\"/>");
        }
    }

    /// The picture, with a sentence for those who cannot see it.
    pub(crate) fn finish(self, says: &str) -> String {
        let Self { width, height, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             role=\"img\">\n<title>{says}</title>\n{STYLE}{body}</svg>\n"
        )
    }
}
