//! The names that a method uses, for one `use tunebox::prelude::*;`.

pub use crate::data::{Batch, Rows};
pub use crate::error::{Error, Result};
pub use crate::learn::{backward_from, minimise, update};
pub use crate::loss;
pub use crate::method::Method;
pub use crate::model::{Scores, Taps, View, policy, reference, score, score_for_learning, snapshot};
pub use crate::pair::Pair;
pub use crate::reward::{judge, weights};
pub use crate::run::{add_metric, log, metric};
pub use crate::sample::{Completions, Sampler, generate};
pub use crate::settings::{Choice, Settings};
pub use crate::tensor::{All, Keep, Tensor, choose};
pub use crate::verifier::Verifier;
pub use tunebox_derive::{Choice, Settings, method, verifier};
