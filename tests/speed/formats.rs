//! What bf16 changes: curves of the same updates in bf16 and in f32, of tunebox and of PyTorch.

use std::fmt::Write as _;

use super::results::{OURS, Row, median};

/// The side that tunebox is compared with.
const PEER: &str = "PyTorch";

/// The curves of a row, and what the table calls them.
const CURVES: [(&str, &str); 3] = [("loss", "loss"), ("gradient-norm", "gradient norm"), ("kl", "KL")];

/// How far apart the curves of one metric lie: means over the updates, as shares of the mean of the second curve.
pub(crate) struct Difference {
    /// Of tunebox in bf16 and in f32.
    pub(crate) ours: f64,
    /// Of PyTorch in bf16 and in f32.
    pub(crate) theirs: f64,
    /// Of tunebox and PyTorch, both in f32.
    pub(crate) between: f64,
    /// Whether tunebox's formats lie no farther apart than PyTorch's by the median over the updates.
    is_closer_by_median: bool,
}

/// The differences of a row's curves in the order of the table; `None` for a curve that the row lacks.
pub(crate) fn differences(row: &Row<'_>) -> [Option<Difference>; CURVES.len()] {
    CURVES.map(|(key, _)| {
        let curve = |side, format| row.curve(side, format, key);
        let ours = [curve(OURS, "bf16")?, curve(OURS, "f32")?];
        let theirs = [curve(PEER, "bf16")?, curve(PEER, "f32")?];
        Some(Difference {
            ours: apart(&ours[0], &ours[1], mean),
            theirs: apart(&theirs[0], &theirs[1], mean),
            between: apart(&ours[1], &theirs[1], mean),
            is_closer_by_median: apart(&ours[0], &ours[1], median) <= apart(&theirs[0], &theirs[1], median),
        })
    })
}

/// The mean or median distance of two curves, as a share of the mean of the second.
fn apart(found: &[f64], wanted: &[f64], middle: fn(Vec<f64>) -> f64) -> f64 {
    assert_eq!(found.len(), wanted.len(), "curves of the same updates");
    let distances = found.iter().zip(wanted).map(|(found, wanted)| (found - wanted).abs());
    middle(distances.collect()) / mean(wanted.iter().map(|wanted| wanted.abs()).collect())
}

fn mean(values: Vec<f64>) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The table of all rows; empty without rows.
pub(crate) fn table(rows: &[Row<'_>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let all: Vec<Difference> = rows.iter().flat_map(differences).flatten().collect();
    let mut text = format!(
        "How far curves in bf16 lie from those in f32, in tunebox and in PyTorch, over the same updates from the same adapter: \
         their mean difference, as a share of the mean in f32. GRPO learns from recorded completions. Of {} \
         curves, {} lie no farther from f32 in tunebox than in PyTorch by the mean, and {} by the median, in which no single \
         update weighs much. In f32 the curves of the two lie at most {:.3} % apart.\n\n| updates | model |",
        all.len(),
        all.iter().filter(|one| one.ours <= one.theirs).count(),
        all.iter().filter(|one| one.is_closer_by_median).count(),
        100.0 * all.iter().map(|one| one.between).fold(0.0, f64::max)
    );
    CURVES.iter().for_each(|(_, title)| text += &format!(" {title} |"));
    let _ = write!(text, "\n|---|---|{}\n", "---:|".repeat(CURVES.len()));
    for row in rows {
        let _ = write!(text, "| {} | {} |", row.word("setting"), row.word("model"));
        for difference in differences(row) {
            let said = difference.map_or("–".into(), |Difference { ours, theirs, .. }| {
                format!("{:.2} %, {PEER} {:.2} %", 100.0 * ours, 100.0 * theirs)
            });
            let _ = write!(text, " {said} |");
        }
        text.push('\n');
    }
    text
}
