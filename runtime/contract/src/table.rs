//! The table `functions.txt`: a row for each function of the contract.

use super::Outcome;

/// What the host charges for a function beside the fixed cost of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Nothing more.
    Call,
    /// So much work for each unit; the text names the unit.
    Units(u64, String),
    /// A tensor operation: the class of `tunebox_compute::ops::Kind` whose formula applies.
    Operation(String),
}

impl Cost {
    /// Whether this is the cost of a tensor operation that has operands, and so can have a gradient: of every class but
    /// `Create`. Does not tell whether it has one.
    pub(crate) fn is_differentiable_kind(&self) -> bool {
        matches!(self, Self::Operation(class) if class != "Create")
    }
}

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Interface, resource and function, such as `tensor.tensor.exp`.
    pub path: String,
    /// What it costs.
    pub cost: Cost,
    /// Whether a gradient flows through it.
    pub gradient: bool,
    /// The constant of `tunebox_compute::ops` that limits how many tensors it takes, if it takes a list of them.
    pub limit: Option<String>,
}

/// Parses `functions.txt`, without comments and blank lines, and sorts its rows by path.
pub(crate) fn rows() -> Outcome<Vec<Row>> {
    let lines = include_str!("../functions.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let mut rows = lines.map(parse_row).collect::<Outcome<Vec<_>>>()?;
    rows.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(rows)
}

/// Parses one line, such as `path: call`, `path: 10 × bytes` or `path: Elementwise, gradient, at most MAX_PARTS`. A
/// line without a cost costs the call alone. Fails for a line without a colon, for work that is not an integer, and for
/// words other than these after the cost. Takes any other word in place of the cost as the class of an operation,
/// unchecked.
fn parse_row(line: &str) -> Outcome<Row> {
    let (path, rest) = line.split_once(':').ok_or_else(|| format!("`{line}` in `functions.txt` has no colon"))?;
    let (path, rest) = (path.to_owned(), rest.trim());
    if let Some((work, unit)) = rest.split_once(" × ") {
        let cost = Cost::Units(work.replace(',', "").parse()?, unit.to_owned());
        return Ok(Row { path, cost, gradient: false, limit: None });
    }
    let mut words = rest.split(", ");
    let cost = match words.next() {
        None | Some("call") => Cost::Call,
        Some(class) => Cost::Operation(class.to_owned()),
    };
    let mut row = Row { path, cost, gradient: false, limit: None };
    for word in words {
        match (word, word.strip_prefix("at most ")) {
            ("gradient", _) => row.gradient = true,
            (_, Some(limit)) => row.limit = Some(limit.to_owned()),
            _ => return Err(format!("`{word}` in the row of `{}` means nothing", row.path).into()),
        }
    }
    Ok(row)
}
