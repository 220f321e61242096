//! The measurements of `tests/peers/results/`, a file for each kind of machine: medians of each side, and the peers that each
//! row is compared with.

use std::collections::BTreeSet;

use serde_json::Value;

/// What tunebox is called among the sides of a row.
pub(crate) const OURS: &str = "tunebox";

/// Questions whose rows are compared, in the order of the tables, and what the tables call their work.
pub(crate) const COMPARED: &[(&str, &str)] = &[
    ("dense", "LoRA, every token a label"),
    ("records", "LoRA, chat records"),
    ("preference", "DPO, pairs of answers"),
    ("grpo", "GRPO"),
    ("decode", "Writing from a GGUF file"),
];

/// The data file of a machine.
pub(crate) struct Results(Value);

/// One setting of a question, with every measurement of each side.
pub(crate) struct Row<'a>(&'a Value);

/// What one side reached: medians over its processes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reached {
    /// In the row's unit, more is better.
    pub(crate) rate: f64,
    /// The most memory that the process held.
    pub(crate) peak_bytes: f64,
    /// The number of processes.
    pub(crate) processes: usize,
}

/// tunebox beside a peer.
#[derive(Debug, PartialEq)]
pub(crate) struct Comparison {
    pub(crate) work: &'static str,
    pub(crate) setting: String,
    pub(crate) model: String,
    pub(crate) unit: String,
    pub(crate) peer: String,
    pub(crate) ours: Reached,
    pub(crate) theirs: Reached,
}

impl Comparison {
    /// How many times as fast tunebox is.
    pub(crate) fn speed(&self) -> f64 {
        self.ours.rate / self.theirs.rate
    }

    /// What share of the peer's memory tunebox holds.
    pub(crate) fn memory(&self) -> f64 {
        self.ours.peak_bytes / self.theirs.peak_bytes
    }
}

impl Results {
    /// Reads the text of the file.
    pub(crate) fn parse(text: &str) -> Self {
        Self(serde_json::from_str(text).unwrap())
    }

    /// The rows of a question; none where it has not been answered.
    pub(crate) fn rows(&self, question: &str) -> Vec<Row<'_>> {
        let rows = self.0["questions"][question]["rows"].as_array();
        rows.into_iter().flatten().map(Row).collect()
    }

    /// Every row of the compared questions with its peers, the fastest one first.
    pub(crate) fn comparisons(&self) -> Vec<Vec<Comparison>> {
        let of = |(question, work): &(&str, &'static str)| -> Vec<Vec<Comparison>> {
            self.rows(question).iter().map(|row| row.comparisons(work)).collect()
        };
        COMPARED.iter().flat_map(of).filter(|row| !row.is_empty()).collect()
    }

    /// Every row beside its fastest peer.
    pub(crate) fn fastest(&self) -> Vec<Comparison> {
        self.comparisons().into_iter().filter_map(|row| row.into_iter().next()).collect()
    }

    /// A part of every question's notes, each different one once.
    pub(crate) fn notes(&self, say: impl Fn(&Value) -> String) -> Vec<String> {
        let questions = self.0["questions"].as_object().unwrap();
        questions.values().map(say).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The days on which rows were measured, in order.
    pub(crate) fn dates(&self) -> Vec<String> {
        let questions = self.0["questions"].as_object().unwrap();
        let rows = questions.values().filter_map(|question| question["rows"].as_array()).flatten();
        rows.filter_map(|row| row["date"].as_str().map(str::to_owned)).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Every text in the file.
    pub(crate) fn texts(&self) -> Vec<&str> {
        fn collect_texts<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::String(text) => found.push(text),
                Value::Array(items) => items.iter().for_each(|item| collect_texts(item, found)),
                Value::Object(fields) => fields.values().for_each(|field| collect_texts(field, found)),
                _ => {}
            }
        }
        let mut found = Vec::new();
        collect_texts(&self.0, &mut found);
        found
    }
}

impl Row<'_> {
    /// A word of the row: `model`, `setting` or `unit`.
    pub(crate) fn word(&self, key: &str) -> String {
        self.0[key].as_str().unwrap().to_owned()
    }

    /// A word of a side's first measurement, such as its number format.
    pub(crate) fn side_word(&self, side: &str, key: &str) -> Option<&str> {
        self.0["sides"][side][0][key].as_str()
    }

    /// The sides that were measured, tunebox first and the others by name.
    pub(crate) fn sides(&self) -> Vec<&str> {
        let mut sides: Vec<&str> = self.0["sides"].as_object().unwrap().keys().map(String::as_str).collect();
        sides.sort_by_key(|side| (*side != OURS, *side));
        sides
    }

    /// The median of a figure; `None` where a process does not have it.
    pub(crate) fn middle(&self, side: &str, key: &str) -> Option<f64> {
        let measured = self.0["sides"][side].as_array()?;
        let found = measured.iter().map(|one| one[key].as_f64()).collect::<Option<Vec<f64>>>()?;
        (!found.is_empty()).then(|| median(found))
    }

    /// A curve of a side's first measurement in a number format, such as the losses in bf16, a value for each update.
    pub(crate) fn curve(&self, side: &str, format: &str, key: &str) -> Option<Vec<f64>> {
        self.0["sides"][side][0][format][key].as_array()?.iter().map(Value::as_f64).collect()
    }

    /// What a side reached.
    pub(crate) fn reached(&self, side: &str) -> Option<Reached> {
        let processes = self.0["sides"][side].as_array()?.len();
        Some(Reached { rate: self.middle(side, "rate")?, peak_bytes: self.middle(side, "peak_bytes")?, processes })
    }

    /// tunebox beside each peer, the fastest one first.
    fn comparisons(&self, work: &'static str) -> Vec<Comparison> {
        let beside = |peer: &str| {
            let [setting, model, unit] = ["setting", "model", "unit"].map(|key| self.word(key));
            let (ours, theirs) = (self.reached(OURS)?, self.reached(peer)?);
            Some(Comparison { work, setting, model, unit, peer: peer.to_owned(), ours, theirs })
        };
        let mut all: Vec<Comparison> =
            self.sides().into_iter().filter(|side| *side != OURS).filter_map(beside).collect();
        all.sort_by(|a, b| a.speed().total_cmp(&b.speed()));
        all
    }
}

/// The median of at least one value.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    f64::midpoint(values[(count - 1) / 2], values[count / 2])
}
