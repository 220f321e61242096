//! The names that a method uses, for one `use tunebox::prelude::*;`.
//!
//! ```
//! use tunebox::prelude::*;
//!
//! fn step(batch: &Batch) -> Result<()> {
//!     let scores = score_for_learning(&batch.rows("example")?, Taps::empty(), 1.0)?;
//!     backward(&loss::token_mean(&-scores.logprob(), batch.window_targets("example")?))
//! }
//! ```

pub use crate::data::{Batch, Rows};
pub use crate::environment::{Environment, Reply, Turn};
pub use crate::error::{Error, Result};
pub use crate::learn::{backward, backward_from, update};
pub use crate::loss;
pub use crate::method::Method;
pub use crate::model::{Scores, Taps, View, policy, reference, score, score_for_learning, snapshot};
pub use crate::pair::Pair;
pub use crate::reward::{judge, weights};
pub use crate::run::{add_metric, log, metric};
pub use crate::sample::{Completions, Sampler, generate};
pub use crate::settings::{Choice, Settings};
pub use crate::tensor::{All, Keep, Tensor, where_};
pub use crate::verifier::Verifier;
pub use tunebox_derive::{Choice, Settings, environment, method, verifier};

#[cfg(test)]
mod tests {
    #[test]
    fn every_name_is_on_the_page_of_the_sdk() {
        let (source, page) = (include_str!("prelude.rs"), include_str!("../README.md"));
        let used =
            source.lines().filter_map(|line| line.strip_prefix("pub use ")?.strip_suffix(';')?.rsplit("::").next());
        let names: Vec<&str> = used.flat_map(|names| names.trim_matches(['{', '}']).split(", ")).collect();
        assert!(names.len() > 20, "{names:?}");
        let missing: Vec<&&str> = names.iter().filter(|name| !page.contains(&format!("`{name}"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
