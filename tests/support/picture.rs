//! A console block as a picture: text on a dark ground, commands brighter than what they say.

use std::fmt::Write as _;

/// Pixels of a line and of a column, and around it all.
const LINE: usize = 19;
const COLUMN: f32 = 8.43;
const MARGIN: usize = 16;

/// The first `console` block of a page as an SVG image, cut to 110 columns.
pub(crate) fn of_first_block(page: &str) -> String {
    let block = page.lines().skip_while(|line| *line != "```console").skip(1).take_while(|line| *line != "```");
    let lines: Vec<String> = block.map(|line| line.chars().take(110).collect()).collect();
    let columns = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let (width, height) = ((columns as f32 * COLUMN).ceil() as usize + 2 * MARGIN, lines.len() * LINE + 2 * MARGIN);
    let mut image = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16181d\"/>\n"
    );
    for (number, line) in lines.iter().enumerate() {
        let color = if line.starts_with("$ ") { "#8fd18a" } else { "#d5d8de" };
        let baseline = MARGIN + number * LINE + 14;
        let text = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(
            image,
            "<text x=\"{MARGIN}\" y=\"{baseline}\" fill=\"{color}\" xml:space=\"preserve\">{text}</text>"
        );
    }
    image + "</svg>\n"
}
